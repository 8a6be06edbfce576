//! Functions of CUPTI that the program, or a library of it, calls: looked at and passed on, and left out of the trace's calls.
//!
//! A line names the function and what a call of it means for our own use of CUPTI ([`Use`]).

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::gpu_time::aside::{self, Use};
use crate::interpose::elf;

/// CUPTI_ERROR_NOT_INITIALIZED: what a call gets that reached us although there is no CUPTI.
const ABSENT: u32 = 15;

macro_rules! functions {
    ($($name:ident $what:expr;)+) => {
        /// In the order of the list.
        #[allow(non_camel_case_types)]
        enum Number { $($name),+ }

        struct Function {
            name: &'static CStr,
            what: Use,
            entry: unsafe extern "C" fn(),
            /// Where dlsym, or the loader, would have led the program.
            original: AtomicUsize,
        }

        static LIST: [Function; [$(stringify!($name)),+].len()] = [$(Function {
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            what: $what,
            entry: $name,
            original: AtomicUsize::new(0),
        }),+];

        $(stub!($name);)+
    };
}

macro_rules! stub {
    ($name:ident) => {
        /// CUPTI's function of this name: looked at, and jumped to.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "sub rsp, 8", // seven words and the return address keep the stack aligned to 16
                "lea rsi, [rsp + 8]",
                "mov edi, {number}",
                "call {look}",
                "add rsp, 8",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop r8",
                "pop r9",
                "jmp rax",
                number = const Number::$name as u32,
                look = sym look,
            )
        }

        /// CUPTI's function of this name: looked at, and jumped to.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-64]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "add x1, sp, #16",
                "mov w0, #{number}",
                "bl {look}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x29, x30, [sp], #64",
                "br x16",
                number = const Number::$name as u32,
                look = sym look,
            )
        }
    };
}

functions! {
    cuptiActivityDisable Use::Disables(0);
    cuptiActivityDisableContext Use::Disables(1);
    cuptiActivityDisable_v2 Use::Disables(1);
    cuptiActivityEnable Use::Enables(0);
    cuptiActivityEnableAndDump Use::Enables(0);
    cuptiActivityEnableContext Use::Enables(1);
    cuptiActivityEnable_v2 Use::Enables(1);
    cuptiActivityFlushAll Use::Flushes;
    cuptiActivityRegisterCallbacks Use::Registers;
    cuptiActivityRegisterCallbacks_v2 Use::Begins;
    cuptiActivityRegisterTimestampCallback Use::SetsClock;
    cuptiEventGroupDisable Use::EndsMeasuring;
    cuptiEventGroupEnable Use::Measures;
    cuptiFinalize Use::Finalizes;
    cuptiPCSamplingDisable Use::EndsMeasuring;
    cuptiPCSamplingEnable Use::Measures;
    cuptiPmSamplingDisable Use::EndsMeasuring;
    cuptiPmSamplingEnable Use::Measures;
    cuptiProfilerDeInitialize Use::EndsMeasuring;
    cuptiProfilerInitialize Use::Measures;
    cuptiRangeProfilerDisable Use::EndsMeasuring;
    cuptiRangeProfilerEnable Use::Measures;
    cuptiSassMetricsDisable Use::EndsMeasuring;
    cuptiSassMetricsEnable Use::Measures;
    cuptiSubscribe Use::Subscribes;
    cuptiSubscribe_v2 Use::Subscribes;
}

/// The number of what is no function: the variable by which tools are injected.
pub(crate) const INJECTION: u32 = u16::MAX as u32 - 1;

/// The name of a function of the list.
pub(crate) fn name(number: usize) -> &'static [u8] {
    LIST.get(number).map_or(b"CUDA_INJECTION64_PATH", |function| function.name.to_bytes())
}

/// What the program is to get that looked this function up and would have got `real`; none: that itself.
pub(crate) fn entry(name: &CStr, real: usize) -> Option<usize> {
    let function = LIST.iter().find(|function| function.name == name)?;
    let entry = function.entry as *const () as usize;
    if real != entry {
        function.original.store(real, Ordering::Relaxed);
    }
    Some(entry)
}

/// Whether an address is one of ours.
pub(crate) fn is_entry(address: usize) -> bool {
    LIST.iter().any(|function| function.entry as *const () as usize == address)
}

unsafe extern "C" fn absent() -> u32 {
    ABSENT
}

/// Looks at a call; returns where it goes.
unsafe extern "C" fn look(number: u32, arguments: *const [usize; 6]) -> usize {
    let Some(function) = LIST.get(number as usize) else { return absent as *const () as usize };
    let original = match function.original.load(Ordering::Relaxed) {
        0 => elf::next_definition(function.name),
        known => known,
    };
    if original == 0 {
        return absent as *const () as usize;
    }
    function.original.store(original, Ordering::Relaxed);
    // SAFETY: the stub's own frame, which holds the registers that arguments come in.
    if let Some(arguments) = unsafe { arguments.as_ref() } {
        aside::before(number as usize, function.what, original, arguments);
    }
    original
}
