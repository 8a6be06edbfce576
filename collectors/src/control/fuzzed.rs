//! A line of the control socket, of any bytes.

use super::{Request, Setting};

pub(crate) fn control(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    match Request::of(&line) {
        Request::Set(settings) => {
            for setting in settings {
                assert_eq!(Setting::of(&setting.to_string()).map(|again| again.to_string()), Some(setting.to_string()));
            }
        }
        Request::Start(Some(capture)) => {
            assert_eq!(Request::of(&format!("start {capture}")), Request::Start(Some(capture)));
            for now_ns in [i64::MIN, 0, 1, capture.from_ns, i64::MAX] {
                let _ = capture.is_on(now_ns);
                assert!(capture.next_change(now_ns).is_none_or(|then| then >= now_ns), "{capture} {now_ns}");
            }
        }
        _ => {}
    }
}
