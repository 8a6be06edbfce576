//! y = a x + y on the GPU through cudarc: a small Rust program to trace.
//!
//!     cargo build --example saxpy && gputrace -- target/debug/examples/saxpy
//!
//! Without a GPU it runs on the simulated driver: put the folder of its `libcuda.so.1` into LD_LIBRARY_PATH.

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// `extern "C" __global__ void saxpy(int n, float a, const float *x, float *y)`, compiled for compute capability 5.2.
const SAXPY_PTX: &str = r#"
.version 6.0
.target sm_52
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
    .reg .pred %p;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %d<8>;
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [a];
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p, %r5, %r1;
    @%p bra DONE;
    cvta.to.global.u64 %d3, %d1;
    cvta.to.global.u64 %d4, %d2;
    mul.wide.s32 %d5, %r5, 4;
    add.s64 %d6, %d3, %d5;
    add.s64 %d7, %d4, %d5;
    ld.global.f32 %f2, [%d6];
    ld.global.f32 %f3, [%d7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%d7], %f4;
DONE:
    ret;
}
"#;

fn main() -> Result<(), DriverError> {
    const N: usize = 1 << 20;
    const ROUNDS: usize = 10;
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let saxpy = context.load_module(Ptx::from_src(SAXPY_PTX))?.load_function("saxpy")?;
    let x = stream.clone_htod(&vec![1.0f32; N])?;
    let mut y = stream.clone_htod(&vec![2.0f32; N])?;
    let (n, a) = (N as i32, 3.0f32);
    for _ in 0..ROUNDS {
        let mut launch = stream.launch_builder(&saxpy);
        launch.arg(&n).arg(&a).arg(&x).arg(&mut y);
        // SAFETY: the arguments are the kernel's parameters in order, and both vectors hold N floats.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }?;
    }
    let result = stream.clone_dtoh(&y)?;
    let expected = 2.0 + 3.0 * ROUNDS as f32;
    let wrong = result.iter().filter(|value| **value != expected).count();
    println!("saxpy: {} of {N} values right", N - wrong);
    std::process::exit(i32::from(wrong != 0))
}
