//! Panics of the Parquet reader, turned into messages.
//!
//! On damaged files the Parquet and Arrow crates may panic (seen: an encoding that a flipped bit made up). The whole
//! workspace is built with `panic = "abort"`, so nothing can be caught. But the panic hook runs before the process
//! aborts, on the thread that panicked, and a hook that never returns keeps it from aborting. So decoding runs on
//! threads of its own; when one panics its hook tells whoever waits for it, and the thread sleeps for ever. That costs
//! the memory it held, once per damaged file.

use std::cell::Cell;
use std::io;
use std::sync::Once;
use std::thread;

type Tell = Box<dyn FnOnce(String)>;

thread_local! {
    static TELL: Cell<Option<Tell>> = const { Cell::new(None) };
}

/// Runs `work` on a thread of its own; if it panics, `tell` gets the message and the thread never ends.
pub(crate) fn spawn(
    work: impl FnOnce() + Send + 'static,
    tell: impl FnOnce(String) + Send + 'static,
) -> io::Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |about| match TELL.take() {
            None => usual(about),
            Some(tell) => {
                let text = about.payload().downcast_ref::<&str>().map(|s| (*s).to_owned());
                let text = text.or_else(|| about.payload().downcast_ref::<String>().cloned());
                tell(text.unwrap_or_default());
                // Where panics unwind (in test builds) the thread just ends. It must: this hook runs under a lock of
                // the standard library's, and the test runner waits for that lock when its tests are done.
                while cfg!(panic = "abort") {
                    thread::park();
                }
            }
        }));
    });
    let run = move || {
        TELL.set(Some(Box::new(tell)));
        work();
        TELL.take();
    };
    thread::Builder::new().name("decode".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    #[test]
    fn a_panic_becomes_a_message_and_the_process_lives() {
        let (sender, receiver) = mpsc::channel();
        let other = sender.clone();
        super::spawn(move || drop(other.send("fine".to_owned())), |_| {}).unwrap();
        assert_eq!(receiver.recv().unwrap(), "fine");
        super::spawn(|| panic!("number {}", 7), move |text| drop(sender.send(text))).unwrap();
        assert_eq!(receiver.recv().unwrap(), "number 7");
    }
}
