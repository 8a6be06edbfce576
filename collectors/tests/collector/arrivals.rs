//! How processes come and go.

use std::fs::File;

use gputrace_abi::layout::malloc_mode;
use gputrace_abi::sync::Ordering;
use gputrace_collectors::{Untraced, manifest};

use crate::rows::{batches, flags, numbers, texts, values};
use crate::support::{Folder, Memory, Target, Thread, wait_until};
use crate::{assert_exact, collect, finish};

#[test]
fn an_exec_ends_the_image_before_it() {
    let folder = Folder::new("exec");
    let running = collect(&folder);
    let next = Memory::new(16 << 20, malloc_mode::SAMPLE);
    let mut target = Target::with_next(&folder.session(), Memory::new(16 << 20, malloc_mode::SAMPLE), &next);
    running.root(target.pid as u32);
    target.thread(1).call("cuLaunchKernel", [1, 0, 0, 0]);
    target.wait_until_read();
    target.exec();
    wait_until("the second image", || next.view.header().heartbeat.load(Ordering::Relaxed) != 0);
    let mut thread = Thread::new(next.view, 1);
    thread.call("cuLaunchKernel", [2, 0, 0, 0]);
    thread.call("cuLaunchKernel", [3, 0, 0, 0]);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let processes = batches(&folder.trace(), "processes");
    assert_eq!(values(&processes, "pid"), [i64::from(target.pid); 2]);
    assert_eq!(values(&processes, "events"), [1, 2]);
    assert_eq!(numbers(&processes, "exit_code"), [None, Some(7)]);
    assert!(numbers(&processes, "end_ns").iter().all(Option::is_some));
    assert_eq!(manifest.root.unwrap().process_id, Some(values(&processes, "process_id")[1]));
}

#[test]
fn segments_that_stand_as_files_are_adopted_and_removed() {
    let folder = Folder::new("files");
    let path = folder.session().join("seg-4711-1");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let memory = Memory::in_file(file.into(), 16 << 20, malloc_mode::OFF);
    // A pid that nobody has: the process is gone, what it wrote is not.
    memory.view.header().pid.store(i32::MAX as u32, Ordering::Relaxed);
    let mut thread = Thread::new(memory.view, 1);
    (0..1000).for_each(|n| assert!(thread.call("cuLaunchKernel", [n, 0, 0, 0])));
    let running = collect(&folder);
    wait_until("the file to go", || !path.exists());
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    assert_eq!(manifest.processes[0].accounting["launch"].recorded, 1000);
}

#[test]
fn a_segment_of_another_version_is_named_as_untraced() {
    let folder = Folder::new("version");
    let running = collect(&folder);
    let memory = Memory::new(16 << 20, malloc_mode::OFF);
    memory.view.header().version.store(99, Ordering::Relaxed);
    let mut target = Target::with(&folder.session(), memory);
    target.exit(0);
    let untraced = Untraced { pid: 5, exe: "/bin/static".to_owned(), reason: "statically linked".to_owned() };
    running.untraced(untraced.clone());
    let manifest = finish(running);
    assert_eq!(manifest.untraced.len(), 2);
    assert!(manifest.untraced.contains(&untraced));
    assert!(manifest.untraced.iter().any(|u| u.reason.contains("version 99")));
    let processes = batches(&folder.trace(), "processes");
    assert_eq!(flags(&processes, "traced"), [false, false]);
    assert!(texts(&processes, "reason").contains(&"statically linked".to_owned()));
}

#[test]
fn thousands_of_short_processes_are_all_accounted_for() {
    let folder = Folder::new("many");
    let running = collect(&folder);
    for _ in 0..300 {
        Target::new(&folder.session()).exit(0);
    }
    let manifest = finish(running);
    assert_eq!(manifest.processes.len(), 300);
    assert_eq!(crate::rows::count(&folder.trace(), "processes"), 300);
    assert!(crate::rows::files(&folder.trace(), "processes").len() == 1);
}

#[test]
fn rubbish_on_the_socket_harms_nobody() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("rubbish");
    let running = collect(&folder);
    let path = gputrace_collectors::socket_path(&folder.session());
    for length in [0usize, 1, 24, 5000] {
        // SAFETY: plain calls on descriptors of our own.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (place, byte) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
                *place = *byte as libc::c_char;
            }
            let size = size_of::<libc::sockaddr_un>() as u32;
            assert_eq!(libc::connect(socket, (&raw const address).cast(), size), 0);
            let bytes = vec![7u8; length];
            libc::send(socket, bytes.as_ptr().cast(), length, 0);
            libc::close(socket);
        }
    }
    let mut target = Target::new(&folder.session());
    target.thread(1).call("cuLaunchKernel", [0; 4]);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    assert_eq!((manifest.processes.len(), manifest.untraced.len()), (1, 0));
}

#[test]
fn the_manifest_is_there_from_the_start() {
    let folder = Folder::new("manifest");
    let running = collect(&folder);
    let at = manifest::path(&folder.trace(), "node7", 0xabc);
    let young = manifest::Manifest::read(&at).unwrap();
    assert_eq!((young.complete, young.ended_ns, young.command.len()), (false, None, 1));
    let last = finish(running);
    assert_eq!(manifest::Manifest::read(&at).unwrap(), last);
    assert!(last.complete && last.ended_ns.is_some() && !last.clock.pairs.is_empty());
}
