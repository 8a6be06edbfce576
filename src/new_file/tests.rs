//! What is under a name is whole, or was there before.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::Command;

use super::*;
use crate::launch::testing::Folder;

/// The names in a folder.
fn names(folder: &Folder) -> Vec<String> {
    let all = fs::read_dir(folder.path()).expect("a folder").flatten();
    let mut names: Vec<_> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_older_file_stays_until_the_new_one_is_whole_and_keeps_its_rights() {
    let folder = Folder::new("new-file");
    let file = folder.file("page.html", b"old", 0o640);
    let mut new = NewFile::create(&file).unwrap();
    new.write_all(b"new").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"old");
    drop(new);
    assert_eq!(
        (fs::read(&file).unwrap().as_slice(), names(&folder)),
        (b"old".as_slice(), vec!["page.html".to_owned()])
    );
    write(&file, b"new").unwrap();
    assert_eq!(
        (fs::read(&file).unwrap().as_slice(), names(&folder)),
        (b"new".as_slice(), vec!["page.html".to_owned()])
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn symlinks_are_followed_also_to_what_is_not_there_yet() {
    let folder = Folder::new("new-file-links");
    let file = folder.file("real", b"old", 0o600);
    let (link, far, none) = (folder.path().join("link"), folder.path().join("far"), folder.path().join("none"));
    symlink("real", &link).unwrap();
    symlink(&link, &far).unwrap();
    symlink("later", &none).unwrap();
    write(&far, b"new").unwrap();
    write(&none, b"made").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_eq!(fs::read(folder.path().join("later")).unwrap(), b"made");
    assert!([&link, &far, &none].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
    symlink("circle", folder.path().join("circle")).unwrap();
    assert_eq!(write(&folder.path().join("circle"), b"").unwrap_err().raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn a_fifo_takes_what_is_written_and_stays_one() {
    let folder = Folder::new("new-file-fifo");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    for by_path in [false, true] {
        let (file, reader) = (fifo.clone(), fifo.clone());
        let reads = std::thread::spawn(move || fs::read(reader).unwrap());
        let new = if by_path { NewFile::create_with_path(&file) } else { NewFile::create(&file) };
        let mut new = new.unwrap();
        assert_eq!(new.path() == fifo, !by_path);
        new.write_all(b"through").unwrap();
        new.end().unwrap();
        assert_eq!(reads.join().unwrap(), b"through");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo() && is_direct(&fifo));
        assert_eq!(names(&folder), ["fifo"]);
    }
}

#[test]
fn descriptors_are_no_files_of_ours() {
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert!(is_direct(Path::new(path)), "{path}");
    }
    assert!(!is_direct(Path::new("/dev/shm/none-of-this-name")) && !is_direct(Path::new("stdout")));
}

#[test]
fn what_stands_in_a_file_behind_a_descriptor_stays() {
    use std::os::fd::AsRawFd;
    let folder = Folder::new("new-file-behind");
    let path = folder.path().join("shared");
    fs::write(&path, "head ").unwrap();
    let shared = fs::OpenOptions::new().append(true).open(&path).unwrap();
    write(Path::new(&format!("/proc/self/fd/{}", shared.as_raw_fd())), "body").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"head body");
}

#[test]
fn several_take_their_names_together_or_none_is_left_unfinished() {
    let folder = Folder::new("new-file-several");
    let made: Vec<NewFile> =
        ["a", "b"].iter().map(|name| NewFile::create(&folder.path().join(name)).unwrap()).collect();
    assert!(names(&folder).iter().all(|name| name.ends_with(".part")));
    NewFile::end_all(made).unwrap();
    assert_eq!(names(&folder), ["a", "b"]);
    let made: Vec<NewFile> =
        ["c", "d"].iter().map(|name| NewFile::create(&folder.path().join(name)).unwrap()).collect();
    fs::create_dir(folder.path().join("d")).unwrap();
    assert!(NewFile::end_all(made).is_err());
    assert_eq!(names(&folder), ["a", "b", "c", "d"]);
}
