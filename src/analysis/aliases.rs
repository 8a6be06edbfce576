//! What other tools call a question that one of our analyses answers: whoever comes from there finds it by that name.
//!
//! Reports and rules of Nsight Systems (`nsys stats`, `nsys analyze`), and functions of Holistic Trace Analysis with or without
//! their `get_`; capitals, spaces, `_` and `-` do not matter. To add a name: write its line.

use super::{ALL, Analysis};

/// Names, in order, and the analysis that answers each.
const ALIASES: &[(&str, &str)] = &[
    ("aten_op_kernels_and_delay", "ops"),
    ("by_grid", "kernels"),
    ("comm_comp_overlap", "gpu-utilisation"),
    ("communication_computation_overlap", "gpu-utilisation"),
    ("critical_path_analysis", "critical-path"),
    ("cuda_api_gpu_sum", "api"),
    ("cuda_api_pace", "ranks"),
    ("cuda_api_sum", "api"),
    ("cuda_api_sync", "syncs"),
    ("cuda_api_trace", "api"),
    ("cuda_gpu_kern_gb_sum", "kernels"),
    ("cuda_gpu_kern_hist", "kernels"),
    ("cuda_gpu_kern_pace", "ranks"),
    ("cuda_gpu_kern_sum", "kernels"),
    ("cuda_gpu_mem_size_sum", "transfers"),
    ("cuda_gpu_mem_time_sum", "transfers"),
    ("cuda_gpu_sum", "kernels"),
    ("cuda_gpu_time_util_map", "gpu-utilisation"),
    ("cuda_gpu_trace", "kernels"),
    ("cuda_kern_exec_sum", "launch-overhead"),
    ("cuda_kern_exec_trace", "launch-overhead"),
    ("cuda_kernel_launch_stats", "launch-overhead"),
    ("cuda_memcpy_async", "transfers"),
    ("cuda_memcpy_sync", "transfers"),
    ("cuda_memset_sync", "transfers"),
    ("frequent_cuda_kernel_sequences", "kernel-sequences"),
    ("gpu_kernel_breakdown", "kernels"),
    ("gpu_kernels_with_user_annotations", "ranges"),
    ("gpu_time_util", "gpu-utilisation"),
    ("gpu_time_utilization", "gpu-utilisation"),
    ("gpu_user_annotation_breakdown", "ranges"),
    ("gpu_utilization", "gpu-utilisation"),
    ("idle_time_breakdown", "gpu-gaps"),
    ("implicit_syncs", "syncs"),
    ("kernel_breakdown", "kernels"),
    ("launch_stats", "launch-overhead"),
    ("memory_bw_summary", "transfers"),
    ("memory_bw_time_series", "transfers"),
    ("nccl_gpu_overlap_trace", "gpu-utilisation"),
    ("nccl_gpu_time_util_map", "gpu-utilisation"),
    ("nccl_sum", "collectives"),
    ("nvtx_gpu_proj_sum", "ranges"),
    ("nvtx_gpu_proj_trace", "ranges"),
    ("nvtx_kern_sum", "ranges"),
    ("nvtx_pace", "ranks"),
    ("nvtx_pushpop_sum", "ranges"),
    ("nvtx_pushpop_trace", "ranges"),
    ("nvtx_startend_sum", "ranges"),
    ("nvtx_sum", "ranges"),
    ("openacc_sum", "api"),
    ("osrt_sum", "os-waits"),
    ("osrt_trace", "os-waits"),
    ("potential_stragglers", "ranks"),
    ("profiler_steps", "steps"),
    ("queue_length_summary", "queue-length"),
    ("queue_length_time_series", "queue-length"),
    ("straggler", "ranks"),
    ("stragglers", "ranks"),
    ("tail_effect", "occupancy"),
    ("temporal_breakdown", "gpu-utilisation"),
    ("time_spent_blocked_on_full_queue", "queue-length"),
    ("um_cpu_page_faults_sum", "unified-memory"),
    ("um_sum", "unified-memory"),
    ("um_total_sum", "unified-memory"),
];

/// A name as it stands in the lists.
fn plain(name: &str) -> String {
    let plain = name.trim().to_lowercase().replace(['-', ' '], "_");
    plain.strip_prefix("get_").unwrap_or(&plain).to_owned()
}

/// What to say of a name that is no analysis: the names that are most like it, of these too.
pub(crate) fn unknown(name: &str, others: &[&'static str]) -> String {
    let plain = plain(name);
    // HTA compares two traces by a function of this name.
    if plain == "trace_diff" {
        return format!("{name}: that is a command here: gputrace diff A B");
    }
    let ours = ALL.iter().map(|analysis| analysis.name()).chain(others.iter().copied());
    let like = |known: &str| strsim::normalized_damerau_levenshtein(&plain, &known.replace('-', "_"));
    let mut known: Vec<(&str, f64)> =
        ours.chain(ALIASES.iter().map(|(alias, _)| *alias)).map(|known| (known, like(known))).collect();
    known.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let nearest: Vec<&str> = known.iter().take(3).map(|(known, _)| *known).collect();
    format!("{name}: no such analysis; the nearest names are {}", nearest.join(", "))
}

/// The analysis of this name, ours or another tool's.
pub(crate) fn find(name: &str) -> Option<&'static dyn Analysis> {
    let called = |name: &str| ALL.iter().copied().find(|analysis| analysis.name() == name);
    called(name).or_else(|| {
        let plain = plain(name);
        let alias = ALIASES.iter().find(|(alias, _)| **alias == plain).map(|(_, analysis)| *analysis);
        called(alias.unwrap_or(&plain.replace('_', "-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_an_analysis_and_none_stands_twice() {
        assert!(ALIASES.is_sorted_by(|a, b| a.0 < b.0));
        for (alias, analysis) in ALIASES {
            assert_eq!(find(alias).map(Analysis::name), Some(*analysis), "{alias}");
            assert!(ALL.iter().all(|of| of.name() != alias.replace('_', "-")), "{alias} is one of ours");
        }
        for analysis in ALL {
            assert_eq!(find(analysis.name()).map(Analysis::name), Some(analysis.name()));
        }
    }

    #[test]
    fn reports_of_nsight_systems_and_functions_of_hta_are_known_by_their_names() {
        for (name, analysis) in [
            ("by-grid", "kernels"),
            ("tail-effect", "occupancy"),
            ("straggler", "ranks"),
            ("launch_stats", "launch-overhead"),
            ("openacc_sum", "api"),
            ("get_frequent_cuda_kernel_sequences", "kernel-sequences"),
            ("get_gpu_kernel_breakdown", "kernels"),
            ("kernel_breakdown", "kernels"),
            ("nccl_sum", "collectives"),
            ("nccl_gpu_overlap_trace", "gpu-utilisation"),
            ("nccl_gpu_time_util_map", "gpu-utilisation"),
            ("cuda_gpu_time_util_map", "gpu-utilisation"),
            ("cuda_gpu_kern_hist", "kernels"),
            ("cuda_api_pace", "ranks"),
            ("cuda_gpu_kern_pace", "ranks"),
            ("nvtx_pace", "ranks"),
        ] {
            assert_eq!(find(name).map(Analysis::name), Some(analysis), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_what_is_like_it() {
        assert!(unknown("kernals", &[]).contains("the nearest names are kernels, "), "{}", unknown("kernals", &[]));
        assert!(unknown("trace_diff", &[]).ends_with("gputrace diff A B"));
        assert!(unknown("pagable-copies", &["pageable-copies"]).contains("are pageable-copies, "));
    }

    #[test]
    fn how_a_name_is_written_does_not_matter() {
        for name in ["get_idle_time_breakdown", "Idle Time Breakdown", "idle-time-breakdown", " idle_time_breakdown"] {
            assert_eq!(find(name).map(Analysis::name), Some("gpu-gaps"), "{name}");
        }
        for (name, analysis) in
            [("gpu_gaps", "gpu-gaps"), ("Queue Length", "queue-length"), ("implicit-syncs", "syncs")]
        {
            assert_eq!(find(name).map(Analysis::name), Some(analysis), "{name}");
        }
        assert!(find("lunches").is_none() && find("").is_none());
    }
}
