//! What torch.profiler would call a call of the driver: the function of CUDA's runtime that makes it.
//!
//! A profiler inside of a process names launches, copies and sets as the program made them, mostly by the runtime, and its
//! readers look for these names: Holistic Trace Analysis joins kernels with their launches by `cudaLaunchKernel` and
//! `cudaLaunchKernelExC`, copies and sets by `cudaMemcpyAsync` and `cudaMemsetAsync`, and by nothing else. What is recorded are calls
//! of the driver. So these have the runtime's names in an export, each with the function that was recorded beside it, by
//! which `import` knows it again. All other calls keep their names.

/// The runtime's function for one of the driver's, where readers look for it.
pub(super) fn named(driver: &str) -> Option<&'static str> {
    let name = driver.strip_prefix("cu").filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))?;
    let name = ["_ptsz", "_ptds"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let queued = name.contains("Async");
    match name {
        "LaunchKernel" => Some("cudaLaunchKernel"),
        // It launches with attributes, and so cooperatively too.
        _ if name.starts_with("Launch") && !name.starts_with("LaunchHost") => Some("cudaLaunchKernelExC"),
        _ if name.starts_with("Memcpy") && queued => Some("cudaMemcpyAsync"),
        _ if name.starts_with("Memset") && queued => Some("cudaMemsetAsync"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn launches_queued_copies_and_sets_have_the_runtimes_names() {
        for (driver, runtime) in [
            ("cuLaunchKernel", Some("cudaLaunchKernel")),
            ("cuLaunchKernel_ptsz", Some("cudaLaunchKernel")),
            ("cuLaunchKernelEx", Some("cudaLaunchKernelExC")),
            ("cuLaunchCooperativeKernel", Some("cudaLaunchKernelExC")),
            ("cuLaunchHostFunc", None),
            ("cuMemcpyHtoDAsync_v2", Some("cudaMemcpyAsync")),
            ("cuMemcpyAsync_ptsz", Some("cudaMemcpyAsync")),
            ("cuMemcpyHtoD_v2", None),
            ("cuMemsetD8Async", Some("cudaMemsetAsync")),
            ("cuGraphLaunch", None),
            ("cuStreamSynchronize", None),
            ("cudaLaunchKernel", None),
            ("cudaMemcpyAsync", None),
        ] {
            assert_eq!(named(driver), runtime, "{driver}");
        }
    }
}
