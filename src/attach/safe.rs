//! Which thread may make a call of ours: one that holds none of the locks that dlopen takes.
//!
//! Who is inside of the loader, of an allocator or of another function of libc that may hold a lock is found by unwinding its whole stack, with all of
//! its registers. In doubt a thread is let go again and another one looked at, and a moment later all of them once more: where they are
//! changes quickly, and most programs have threads that wait for something.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gputrace_collectors::Unwinder;

use super::image::Image;
use super::maps::{self, Mapping};
use super::memory::Memory;
use super::registers::Registers;
use super::threads::{NotStopped, Thread, Tracer, tids};

/// How often all threads are looked at, how many of them, and how long they run on between.
const ROUNDS: usize = 300;
const MOST_THREADS: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);

/// Functions of libc that hold no lock of its own while they wait, by which threads usually wait.
const WAITS: [&str; 59] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fdatasync",
    "flock",
    "fsync",
    "getppid",
    "getrandom",
    "ioctl",
    "kill",
    "lseek",
    "mq_receive",
    "mq_timedreceive",
    "msgrcv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pread",
    "pread64",
    "pselect",
    "pthread_barrier_wait",
    "pthread_clockjoin_np",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_timedjoin_np",
    "pwrite",
    "pwrite64",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "send",
    "sendmsg",
    "sendto",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "syscall",
    "usleep",
    "waitpid",
    "write",
    "writev",
];
/// Where programs begin. Threads begin where nobody called.
const BEGINNING: &str = "libc_start_main";

/// What is in a thread's way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doubt {
    /// Its frames cannot be followed to the last one.
    Unknown,
    /// It is in this library, or this function of it.
    Inside(String),
}

/// Finds a thread.
pub(super) struct Search<'a> {
    pid: i32,
    memory: &'a Memory,
    maps: &'a [Mapping],
    unwinder: Unwinder,
    images: HashMap<Arc<str>, Option<Image>>,
    program: String,
}

impl<'a> Search<'a> {
    pub(super) fn new(pid: i32, memory: &'a Memory, maps: &'a [Mapping]) -> Search<'a> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"))
            .map_or_else(|_| String::new(), |exe| exe.display().to_string());
        Search { pid, memory, maps, unwinder: Unwinder::of(pid), images: HashMap::new(), program }
    }

    /// A stopped thread that may make a call. Err: why there is none.
    pub(super) fn run(&mut self, tracer: &mut Tracer) -> Result<Thread, String> {
        let mut doubt = Doubt::Unknown;
        for round in 0..ROUNDS {
            tracer.settle();
            for tid in tids(self.pid).into_iter().take(MOST_THREADS) {
                if tracer.is_late(tid) {
                    continue;
                }
                let thread = match tracer.stop(tid) {
                    Ok(thread) => thread,
                    Err(NotStopped::Refused(error)) if tid == self.pid => {
                        // The first thread may have ended before the others.
                        doubt = Doubt::Inside(format!("the kernel ({error})"));
                        continue;
                    }
                    Err(_) => continue,
                };
                let Ok(registers) = Registers::of(thread.tid) else { continue };
                if round == 0 {
                    // The tables of the libraries that it is in are read while it runs: of a large one that takes its time.
                    drop(thread);
                    let _ = self.judge(&registers);
                    continue;
                }
                match self.judge(&registers) {
                    Ok(()) => return Ok(thread),
                    Err(why) => doubt = why,
                }
            }
            if round > 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Err(match doubt {
            Doubt::Unknown => {
                "none of its threads was found where it may be made to load a library: their stacks cannot be read"
                    .to_owned()
            }
            Doubt::Inside(place) => {
                format!(
                    "none of its threads was found where it may be made to load a library; the last one was in {place}"
                )
            }
        })
    }

    fn judge(&mut self, registers: &Registers) -> Result<(), Doubt> {
        let frames = self.unwinder.frames(&registers.by_number(), registers.counter()).ok_or(Doubt::Unknown)?;
        let kinds: Vec<Kind> = frames.iter().map(|(address, path)| self.kind(*address, path)).collect();
        judge(&kinds)
    }

    fn kind(&mut self, address: u64, path: &Arc<str>) -> Kind {
        let name = maps::name(path);
        if name.starts_with("ld-") || name.starts_with("ld.so") || name.starts_with("ld64.") {
            return Kind::Never("the loader".to_owned());
        }
        let (memory, maps) = (self.memory, self.maps);
        let image = self.images.entry(path.clone()).or_insert_with(|| {
            let first = maps.iter().find(|one| one.path == **path && one.range.start <= address)?;
            Image::read(memory, first.range.start).ok()
        });
        let Some(image) = image else { return Kind::Other };
        if is_libc(name) {
            return Kind::Libc(image.names_at(address).map(|name| name.trim_start_matches('_').to_owned()).collect());
        }
        if image.function("malloc").is_none() {
            return Kind::Other;
        }
        // Of a program with an allocator of its own nobody can say which of its functions are that.
        if **path == *self.program { Kind::WithAllocator } else { Kind::Never(format!("the allocator {name}")) }
    }
}

fn is_libc(name: &str) -> bool {
    ["libc.so", "libc-2", "libpthread", "librt.", "librt-", "libdl.", "libdl-"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// What a frame is of.
#[derive(Clone, Debug)]
enum Kind {
    /// libc, in a function of these names.
    Libc(Vec<String>),
    /// A program that brings its own malloc.
    WithAllocator,
    /// What a call must not come out of.
    Never(String),
    Other,
}

/// Whether a thread with these frames, innermost first, may make a call.
fn judge(frames: &[Kind]) -> Result<(), Doubt> {
    if let Some(Kind::Never(what)) = frames.iter().find(|kind| matches!(kind, Kind::Never(_))) {
        return Err(Doubt::Inside(what.clone()));
    }
    let waits = |names: &[String]| names.iter().any(|name| WAITS.contains(&name.as_str()));
    for (at, kind) in frames.iter().enumerate() {
        let (Kind::Libc(names), next) = (kind, frames.get(at + 1)) else { continue };
        // Functions of libc that call each other: the first one says what it is about.
        if matches!(next, Some(Kind::Libc(_))) {
            continue;
        }
        let innermost = frames.iter().take(at).all(|kind| matches!(kind, Kind::Libc(_)));
        let begins = next.is_none() || names.iter().any(|name| name == BEGINNING);
        if !(waits(names) || begins && !innermost) {
            return Err(Doubt::Inside(names.first().map_or("libc".to_owned(), |name| format!("libc's {name}"))));
        }
    }
    match frames.first() {
        Some(Kind::WithAllocator) => Err(Doubt::Inside("a program with an allocator of its own".to_owned())),
        Some(_) => Ok(()),
        None => Err(Doubt::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libc(name: &str) -> Kind {
        Kind::Libc(vec![name.to_owned()].into_iter().filter(|name| !name.is_empty()).collect())
    }

    #[test]
    fn a_thread_that_waits_or_computes_may_make_a_call() {
        let base = [libc(""), libc("libc_start_main"), Kind::Other];
        let start = |frames: &[Kind]| judge(&[frames, &base].concat());
        assert_eq!(start(&[Kind::Other]), Ok(()));
        // Helpers without a name, in a wait for a condition.
        assert_eq!(start(&[libc(""), libc("pthread_cond_wait"), Kind::Other]), Ok(()));
        let thread = [libc(""), libc("clone3")];
        assert_eq!(judge(&[&[Kind::Other][..], &thread].concat()), Ok(()));
        assert_eq!(judge(&[&[libc("read"), Kind::Other][..], &thread].concat()), Ok(()));
    }

    #[test]
    fn a_thread_that_may_hold_a_lock_may_not() {
        let thread = [Kind::Other, libc(""), libc("clone3")];
        let inside = |frames: &[Kind]| judge(&[frames, &thread].concat());
        assert!(inside(&[libc(""), libc("malloc")]).is_err());
        assert!(inside(&[libc("madvise"), libc(""), libc("free")]).is_err());
        assert!(inside(&[libc("")]).is_err(), "a function that nobody can name");
        assert!(inside(&[libc("read"), Kind::Other, libc("dl_iterate_phdr")]).is_err());
        assert!(inside(&[libc("read"), Kind::Never("the loader".to_owned())]).is_err());
        // A thread that begins, or ends.
        assert!(judge(&[libc(""), libc("clone3")]).is_err());
        assert!(judge(&[]).is_err());
        // jemalloc in the program: in a call that waits it is not.
        assert!(judge(&[&[Kind::WithAllocator][..], &thread[1..]].concat()).is_err());
        assert_eq!(judge(&[&[libc("read"), Kind::WithAllocator][..], &thread[1..]].concat()), Ok(()));
    }
}
