//! A collector by itself: `collect TRACE SESSION`, until its standard input ends. What tests kill. COLLECT_FILE_BYTES: when
//! files are sealed; COLLECT_MOST_NAMED: how many processes that ended the manifest names.

use std::io::Read;
use std::time::{Duration, Instant};

use gputrace_collectors::{Config, start};

fn main() {
    let mut arguments = std::env::args().skip(1).map(Into::into);
    let (Some(trace), Some(session)) = (arguments.next(), arguments.next()) else {
        eprintln!("collect TRACE SESSION");
        std::process::exit(2);
    };
    let mut config = Config::new(trace, session, "node7".to_owned(), 0xabc);
    if let Some(bytes) = std::env::var("COLLECT_FILE_BYTES").ok().and_then(|text| text.parse().ok()) {
        config.file_bytes = bytes;
    }
    if let Some(most) = std::env::var("COLLECT_MOST_NAMED").ok().and_then(|text| text.parse().ok()) {
        config.most_named = most;
    }
    let running = start(config).unwrap();
    println!("ready");
    let mut nothing = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut nothing);
    let manifest = running.finish(None, Instant::now() + Duration::from_secs(120)).unwrap();
    manifest.notes.iter().for_each(|note| println!("{note}"));
}
