//! The folders of a trace, held while a file is made in one of them.
//!
//! Who may write into the trace's folder may put a link in the place of a folder in it, before a run or in its midst; and a trace of root's
//! may lie in anybody's folder. So no folder beneath the trace is reached through a link: each is opened from the one above it,
//! and what is made or renamed there goes by the folder that was opened, not by its name. Where `/proc` is not there (macOS, a bare
//! chroot) names have to do: links are refused as well, but not one that comes at the very moment.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// A folder that stays the same one while this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Held for the path, which leads through it.
    _held: File,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder of the file `name` (relative to the trace), and makes what is missing of it.
    pub(crate) fn of(trace: &Path, name: &Path) -> io::Result<Folder> {
        fs::create_dir_all(trace)?;
        let mut folder = Folder::open(trace, trace, 0)?;
        let mut shown = trace.to_owned();
        for part in name.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            shown.push(part);
            let at = folder.path.join(part);
            match fs::create_dir(&at) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => folder = Folder::open(&at, &shown, libc::O_NOFOLLOW)?,
            }
        }
        Ok(folder)
    }

    fn open(at: &Path, shown: &Path, flags: i32) -> io::Result<Folder> {
        let held = File::options().read(true).custom_flags(libc::O_DIRECTORY | flags).open(at);
        let held = held.map_err(|error| if is_link(at) { refused(shown) } else { error })?;
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let path = if by_number.is_dir() { by_number } else { shown.to_owned() };
        Ok(Folder { _held: held, path })
    }

    /// Where a file of the folder is, as long as this lives.
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        path.file_name().map_or_else(|| self.path.clone(), |name| self.path.join(name))
    }
}

/// The folder of a file that lies in a folder of the trace: its manifest, its journal.
pub(crate) fn of_file(path: &Path) -> io::Result<Folder> {
    let (Some(name), Some(trace)) = (path.file_name(), path.parent().and_then(Path::parent)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    Folder::of(trace, &Path::new(folder).join(name))
}

/// Fails where a link lies in the trace's folder, before anything is recorded.
pub(crate) fn refuse_links(trace: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(trace) else { return Ok(()) };
    entries.flatten().map(|entry| entry.path()).find(|path| is_link(path)).map_or(Ok(()), |link| Err(refused(&link)))
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

fn refused(link: &Path) -> io::Error {
    let link = link.display();
    io::Error::other(format!(
        "{link} is a link, and a trace is not written through links; remove it or choose another folder"
    ))
}

/// Writes a file of the trace's own folder anew. It leads nowhere else.
pub fn write_text(trace: &Path, name: &str, text: &str) -> io::Result<()> {
    let folder = Folder::of(trace, Path::new(name))?;
    let at = folder.at(Path::new(name));
    let written = crate::file::own_file(&at).and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| if is_link(&at) { refused(&trace.join(name)) } else { error })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::support;

    #[test]
    fn nothing_is_written_through_a_link_in_a_trace() {
        let scratch = support::Folder::new("links");
        let (trace, victim) = (scratch.0.join("trace"), scratch.0.join("victim"));
        fs::create_dir_all(&victim).unwrap();
        fs::write(victim.join("file"), "precious").unwrap();
        fs::create_dir_all(trace.join("syncs")).unwrap();
        refuse_links(&trace).unwrap();
        for link in ["launches", "syncs/host=vm"] {
            symlink(&victim, trace.join(link)).unwrap();
            let error = Folder::of(&trace, &Path::new(link).join("x.parquet")).unwrap_err().to_string();
            assert!(error.contains(&format!("{link} is a link")), "{error}");
        }
        symlink(victim.join("file"), trace.join("summary.txt")).unwrap();
        assert!(write_text(&trace, "summary.txt", "text").unwrap_err().to_string().contains("summary.txt is a link"));
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
        assert!(refuse_links(&trace).unwrap_err().to_string().contains(" is a link, and a trace is not written"));
        // The trace itself may be named by a link: that is its owner's choice.
        symlink(&trace, scratch.0.join("named")).unwrap();
        write_text(&scratch.0.join("named"), "other/note.txt", "text").unwrap();
        assert_eq!(fs::read_to_string(trace.join("other/note.txt")).unwrap(), "text");
    }

    #[test]
    fn a_folder_that_is_exchanged_for_a_link_is_written_to_where_it_went() {
        let scratch = support::Folder::new("exchanged");
        let (trace, victim) = (scratch.0.join("trace"), scratch.0.join("victim"));
        fs::create_dir_all(&victim).unwrap();
        let folder = Folder::of(&trace, Path::new("syncs/x")).unwrap();
        fs::rename(trace.join("syncs"), trace.join("away")).unwrap();
        symlink(&victim, trace.join("syncs")).unwrap();
        fs::write(folder.at(Path::new("x")), "text").unwrap();
        if Path::new("/proc/self/fd").is_dir() {
            assert_eq!(fs::read_to_string(trace.join("away/x")).unwrap(), "text");
            assert!(!victim.join("x").exists());
        }
    }
}
