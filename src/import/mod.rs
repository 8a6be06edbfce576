//! Traces of other profilers, into our tables, so that every analysis works on them.
//!
//! The format is found by the file's content. A reader ([`kineto`], [`nsys`], [`torch`]) fills [`gathered`]; [`clock`] leaves out what
//! a jump of the clock put elsewhere; [`join`] sorts the rest and finds out which call caused what; [`mod@write`] makes a launcher
//! of it, whose number is the file's own: the same file is not imported twice into a trace.

mod beside;
mod callers;
mod calls;
mod clock;
pub(crate) mod device_times;
mod events;
mod gathered;
mod graphs;
mod join;
mod kineto;
mod known;
mod nsys;
mod rounding;
mod rows;
mod stacks;
mod torch;
mod twice;
mod unmatched;
mod write;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;
use gputrace_collectors::manifest;
use gputrace_collectors::names::{NameKind, id};

use crate::progress::{self, Unit};
use crate::render::number;

use gathered::Gathered;
pub(crate) use kineto::{OPERATOR, Told};
use write::Place;

/// First bytes of a file that is compressed by gzip, and of a database of sqlite.
const GZIP: &[u8] = &[0x1f, 0x8b];
const SQLITE: &[u8] = b"SQLite format 3\0";
/// Bytes by which a file is known again.
const HEAD: u64 = 1 << 20;
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// Imports a file into a trace. What was imported, in words.
pub(crate) fn import(file: &Path, trace: &Path) -> Result<String> {
    let name = file.display();
    if file.is_dir() {
        let what = if file.join("manifest").is_dir() { "is a trace of gputrace already" } else { "is a folder" };
        bail!(
            "{name} {what}; name a file of torch.profiler (.json, .json.gz), of Nsight Systems (.sqlite) or of PyTorch's memory (.pickle)"
        );
    }
    let launcher_id = identity(file).with_context(|| format!("{name} cannot be read"))?;
    let mut found = read(file)?;
    progress::stage(&format!("sorting {name}"), None);
    twice::drop(&mut found);
    clock::judge(&mut found);
    if found.rows() == 0 {
        let why = found.left_out_text().unwrap_or_else(|| "it has no events".to_owned());
        bail!("{name} holds nothing that can be imported: {why}");
    }
    let host = host(found.host.as_deref());
    if manifest::path(trace, &host, launcher_id).exists() {
        bail!("{name} is in {} already", trace.display());
    }
    let (rows, rank) = (found.rows() + found.more_rows(), found.rank);
    let source = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let place = Place { trace, host: &host, launcher_id, source: &source };
    let written = write::write(found, &place);
    let manifest = written.with_context(|| format!("{name} cannot be written to {}", trace.display()))?;
    let rank = rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
    // The first note says where it comes from.
    let notes: String = manifest.notes.iter().skip(1).map(|note| format!("; {note}")).collect();
    let events = if rows == 1 { "event" } else { "events" };
    Ok(format!("{name}: {} {events}{rank} imported{notes}", number(rows as f64)))
}

/// Reads a file in whichever format it is.
fn read(file: &Path) -> Result<Gathered> {
    let name = file.display();
    let opened = File::open(file).with_context(|| format!("{name} cannot be read"))?;
    let length = opened.metadata().map_or(0, |about| about.len());
    progress::stage(&format!("reading {name}"), Some((length, Unit::Bytes)));
    let mut input = BufReader::with_capacity(BUFFER, Counted(opened));
    let head = input.fill_buf().with_context(|| format!("{name} cannot be read"))?;
    let done = match head {
        [] => bail!("{name} is empty"),
        head if head.starts_with(SQLITE) => {
            // What sqlite says of an error, and of that one's cause, is the same twice.
            let once = |error: anyhow::Error| match error.downcast_ref::<rusqlite::Error>() {
                Some(own) => anyhow::anyhow!("{own}"),
                None => error,
            };
            return nsys::read(file).map_err(once).with_context(|| format!("{name} cannot be imported"));
        }
        head if head.starts_with(torch::MAGIC) => return torch::read(file),
        head if head.starts_with(GZIP) => kineto::read(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input))),
        _ => kineto::read(input),
    };
    done.map_err(|error| {
        anyhow::anyhow!(
            "{name} {error}; import reads files of torch.profiler, of Nsight Systems (nsys export --type sqlite) and \
             memory snapshots of PyTorch (_dump_snapshot)"
        )
    })
}

/// A file of which it is shown how far it is read.
struct Counted(File);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).inspect(|read| progress::step(*read as u64))
    }
}

/// A number for the file's content, of 39 bits as launchers have.
fn identity(file: &Path) -> io::Result<u64> {
    let opened = File::open(file)?;
    let length = opened.metadata()?.len();
    let mut head = Vec::new();
    opened.take(HEAD).read_to_end(&mut head)?;
    let hash = id(NameKind::Symbol, &format!("{length} {}", String::from_utf8_lossy(&head)));
    Ok(hash as u64 & ((1 << 39) - 1))
}

/// The host as file names may have it.
fn host(known: Option<&str>) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let host: String = known.unwrap_or_default().chars().filter(|c| fits(*c)).take(64).collect();
    if host.is_empty() || host.starts_with('.') { "imported".to_owned() } else { host }
}
