//! A path as JSON has it, which need not be text: its bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Its bytes.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    path.as_os_str().as_bytes().serialize(to)
}

/// From its bytes.
pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PathBuf, D::Error> {
    Vec::deserialize(from).map(|bytes| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Place(#[serde(with = "super")] PathBuf);

    #[test]
    fn a_path_that_is_no_text_stays_what_it_is() {
        let path = PathBuf::from(OsString::from_vec(b"/tmp/\xff \"a\"".to_vec()));
        let text = serde_json::to_string(&Place(path.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap().0, path);
    }
}
