//! The one line of a stack that a report names: its site.
//!
//! The innermost frame is seldom the one that its user can change: `torch/cuda/__init__.py` waits because `train.py`
//! says so. So the site is the innermost frame of the user's own code, which is everything that is neither installed
//! (site-packages, dist-packages) nor Python's or the system's own, nor a function of an allocator or inlined out of a library's
//! headers; without one it is the innermost frame that is no allocator's, and else the innermost.
//!
//! The text of a Python line is shown where its file is readable now and was last changed before the trace began.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustc_hash::FxHashMap;

use super::Frame;
use crate::trace::names::{printable, shortened};
use crate::trace::wide::{columns_of, front};

/// Characters of a site, and of a function in it.
const SHORT: usize = 52;
const FUNCTION: usize = 32;
/// Longer sources are not read, nor more of them.
const MOST_BYTES: u64 = 4 << 20;
const MOST_FILES: usize = 500;

/// A line of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Site {
    /// Path of the source, or of the library where there is none; empty when neither is known.
    pub(crate) file: String,
    /// Line in the source.
    pub(crate) line: Option<i32>,
    /// Function, demangled.
    pub(crate) function: String,
    /// The line's text, without blanks around it.
    pub(crate) text: Option<String>,
}

impl Site {
    /// `train.py:44 loss.item()`, `train.py:44 main`, `wait (libx.so)`. The end is cut where it is long: what is at the
    /// front says which line it is.
    pub(crate) fn short(&self) -> String {
        let file = shown_file(&self.file);
        let function = shortened(&self.function, FUNCTION);
        let text = match (self.line, &self.text) {
            (Some(line), Some(text)) => format!("{file}:{line} {text}"),
            (Some(line), None) => format!("{file}:{line} {function}").trim_end().to_owned(),
            (None, _) if function.is_empty() => format!("({file})"),
            (None, _) => format!("{function} ({file})"),
        };
        if columns_of(&text) <= SHORT {
            return text;
        }
        format!("{}..", front(&text, SHORT - 2))
    }

    /// `train.py:44 main`: with the function's name, whatever stands on the line.
    pub(crate) fn named(&self) -> String {
        Site { text: None, ..self.clone() }.short()
    }

    /// `train.py:44`: the line alone; the name where there is none.
    pub(crate) fn line(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", shown_file(&self.file)),
            None => self.short(),
        }
    }

    /// The same with the whole path, without the line's text.
    pub(crate) fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        }
    }
}

/// A file's name; with its folder's where that is what the name stands for (`jax/__init__.py`, `ring/mod.rs`).
pub(crate) fn shown_file(path: &str) -> &str {
    const OF_ITS_FOLDER: [&str; 7] =
        ["__init__.py", "__main__.py", "mod.rs", "lib.rs", "main.rs", "index.js", "index.ts"];
    let after = |path: &str| path.rfind('/').map_or(0, |slash| slash + 1);
    let start = after(path);
    let (folder, name) =
        (path.get(..start.saturating_sub(1)).unwrap_or_default(), path.get(start..).unwrap_or_default());
    match OF_ITS_FOLDER.contains(&name) {
        true => path.get(after(folder)..).unwrap_or(name),
        false => name,
    }
}

/// What a frame is to the author of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Code of the author's.
    Own,
    /// Of a library.
    Other,
    /// Of Python's interpreter: the line that it runs says more.
    Interpreter,
    /// It only passes a wish for memory on.
    Allocator,
}

/// The frame of a stack that its site is, of frames with their kinds from the innermost on.
pub(super) fn chosen<T>(frames: impl Iterator<Item = (T, Kind)>) -> Option<T> {
    let mut found: Option<(T, Kind)> = None;
    for (frame, kind) in frames {
        if kind == Kind::Own {
            return Some(frame);
        }
        if found.as_ref().is_none_or(|(_, known)| kind < *known) {
            found = Some((frame, kind));
        }
    }
    found.map(|(frame, _)| frame)
}

/// The site that a frame is.
pub(super) fn site(frame: &Frame, sources: &mut Sources) -> Site {
    let place = frame.place();
    let text = if frame.python { frame.line.and_then(|line| sources.line(&frame.file, line)) } else { None };
    Site { file: printable(place), line: frame.line, function: frame.name(), text }
}

/// How modules of Python's interpreter begin.
const INTERPRETERS: [&str; 2] = ["python3", "libpython"];

impl Frame {
    pub(super) fn kind(&self) -> Kind {
        match self.is_allocator() {
            true => Kind::Allocator,
            false if self.is_own() => Kind::Own,
            false if !self.python && self.is_of_module(&INTERPRETERS) => Kind::Interpreter,
            false => Kind::Other,
        }
    }

    /// The function's name, or where it is in its module.
    pub(crate) fn name(&self) -> String {
        match self.address.filter(|_| self.function.is_empty()) {
            Some(address) => format!("+{address:#x}"),
            None => self.function.clone(),
        }
    }

    /// Whether it is code of the program's author.
    fn is_own(&self) -> bool {
        let installed = |path: &str| path.contains("/site-packages/") || path.contains("/dist-packages/");
        if self.python {
            return !installed(&self.file) && !self.file.starts_with('<') && !is_standard_library(&self.file);
        }
        let system = ["/lib/", "/lib64/", "/usr/lib", "/usr/local/cuda", "/opt/cuda"];
        let is_of = |path: &str, folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
        // Templates and generics of standard libraries are compiled into the program.
        let generic = self.function.trim_start_matches(['<', '&']);
        let is_library = is_of(&self.module, &system)
            || is_of(&self.file, &["/usr/include/", "/rustc/"])
            || is_of(generic, &["alloc::", "core::", "std::"]);
        // An interpreter, and the library by which calls are traced.
        let is_around = self.is_of_module(&INTERPRETERS) || self.is_of_module(&["libgputrace"]);
        !self.function.is_empty() && !installed(&self.module) && !is_library && !is_around && !self.is_allocator()
    }

    /// Whether it lies in a module whose name begins like one of these.
    fn is_of_module(&self, names: &[&str]) -> bool {
        let module = self.module.rsplit('/').next().unwrap_or_default();
        names.iter().any(|name| module.starts_with(name))
    }

    /// Whether it only passes a wish for memory on: functions of malloc's family, operators of C++, allocators of Python and Rust.
    fn is_allocator(&self) -> bool {
        const NAMES: [&str; 23] = [
            "malloc",
            "calloc",
            "realloc",
            "reallocarray",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "valloc",
            "pvalloc",
            "mmap",
            "mmap64",
            "mremap",
            "brk",
            "sbrk",
            "strdup",
            "strndup",
            "morecore",
            "xmalloc",
            "xcalloc",
            "xrealloc",
            "g_malloc",
            "g_malloc0",
            "g_realloc",
        ];
        const STARTS: [&str; 17] = [
            "operator new",
            "__libc_",
            "__gnu_cxx::new_allocator",
            "std::__new_allocator",
            "std::allocator",
            "__gnu_cxx::__alloc_traits",
            "PyMem_",
            "_PyMem_",
            "PyObject_Malloc",
            "PyObject_Calloc",
            "PyObject_Realloc",
            "_PyObject_Malloc",
            "_PyObject_Calloc",
            "_PyObject_Realloc",
            "__rust_",
            "__rdl_",
            "alloc::alloc::",
        ];
        let name = self.function.as_str();
        !self.python && (NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start)))
    }
}

/// `.../lib/python3.11/asyncio/runners.py`
fn is_standard_library(path: &str) -> bool {
    path.split_once("/lib/python3.").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Python sources, as far as they were read.
pub(super) struct Sources {
    files: FxHashMap<String, Option<Vec<String>>>,
    began_ns: i64,
}

impl Sources {
    /// Of a trace that began then.
    pub(super) fn new(began_ns: i64) -> Sources {
        Sources { files: FxHashMap::default(), began_ns }
    }

    fn line(&mut self, path: &str, line: i32) -> Option<String> {
        if !self.files.contains_key(path) {
            let lines = if self.files.len() < MOST_FILES { self.read(path) } else { None };
            self.files.insert(path.to_owned(), lines);
        }
        let text = self.files.get(path)?.as_ref()?.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        // More than is ever shown; a line may be megabytes long.
        let text: String = text.trim().chars().take(SHORT).collect();
        (!text.is_empty()).then(|| printable(&text))
    }

    /// The lines of a file that is what the traced program ran. A trace may name any path, so nothing but regular files
    /// with a name of Python's is opened.
    fn read(&self, path: &str) -> Option<Vec<String>> {
        let path = Path::new(path);
        if !path.is_absolute() || path.extension().is_none_or(|e| e != "py") {
            return None;
        }
        let about = fs::symlink_metadata(path).and_then(|_| fs::metadata(path)).ok()?;
        let began = UNIX_EPOCH + Duration::from_nanos(u64::try_from(self.began_ns).ok()?);
        if !about.is_file() || about.len() > MOST_BYTES || about.modified().ok()? > began {
            return None;
        }
        let text = fs::read(path).ok()?;
        Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::names::full_name;

    fn frame(language: &str, function: &str, file: &str, line: i32, module: &str) -> Frame {
        let line = Some(line).filter(|line| *line > 0);
        let (function, python) = (full_name(function), language == "python");
        Frame { python, function, file: file.into(), line, module: module.into(), address: None }
    }

    fn of(frames: Vec<Frame>) -> Site {
        let frame = chosen(frames.iter().map(|frame| (frame, frame.kind()))).unwrap();
        site(frame, &mut Sources::new(i64::MAX))
    }

    #[test]
    fn the_site_is_the_innermost_line_of_the_users_own_code() {
        let site = of(vec![
            frame("python", "synchronize", "/v/lib/python3.11/site-packages/torch/cuda/__init__.py", 792, ""),
            frame("python", "Runner.run", "/usr/lib/python3.11/asyncio/runners.py", 118, ""),
            frame("python", "<module>", "<string>", 1, ""),
            frame("python", "Trainer.step", "/home/u/train.py", 44, ""),
            frame("python", "main", "/home/u/train.py", 90, ""),
        ]);
        assert_eq!((site.short().as_str(), site.place().as_str()), ("train.py:44 Trainer.step", "/home/u/train.py:44"));
    }

    #[test]
    fn a_name_that_stands_for_its_folder_has_that_before_it() {
        for (path, shown) in [
            ("/usr/lib/python3/jax/__init__.py", "jax/__init__.py"),
            ("/u/train.py", "train.py"),
            ("__init__.py", "__init__.py"),
            ("/__main__.py", "/__main__.py"),
            ("ring/mod.rs", "ring/mod.rs"),
            ("", ""),
        ] {
            assert_eq!(shown_file(path), shown);
        }
    }

    #[test]
    fn without_own_code_it_is_the_innermost_frame() {
        let site = of(vec![
            frame("native", "", "", 0, "/usr/local/cuda/lib64/libcudart.so.12"),
            frame("native", "start_thread", "", 0, "/lib/x86_64-linux-gnu/libc.so.6"),
        ]);
        assert_eq!(site.short(), "(libcudart.so.12)");
    }

    #[test]
    fn a_line_of_python_says_more_than_what_the_interpreter_does_for_it() {
        let interpreter =
            |function| frame("native", function, "/build/Objects/x.c", 8, "/home/u/.pyenv/bin/python3.11");
        let python = frame("python", "_compile", "/usr/lib/python3.11/re/_nobodys.py", 80, "");
        let frames = [interpreter("PyUnicode_New"), python.clone(), interpreter("main")];
        assert_eq!(of(frames.to_vec()).short(), "_nobodys.py:80 _compile");
        assert_eq!(of(vec![interpreter("PyUnicode_New")]).short(), "x.c:8 PyUnicode_New");
        let extension = frame("native", "parse", "", 0, "/v/site-packages/pandas/parsers.so");
        assert_eq!(of(vec![extension, python]).short(), "parse (parsers.so)");
    }

    #[test]
    fn native_functions_are_demangled_and_libraries_of_the_system_passed_over() {
        let frames = || {
            vec![
                frame("native", "", "", 0, "/usr/local/cuda/lib64/libcudart.so.12"),
                frame("native", "_ZN5model7forwardEi", "", 0, "/home/u/libmodel.so"),
            ]
        };
        assert_eq!(of(frames()).short(), "model::forward (libmodel.so)");
        let mut with_line = frames();
        with_line[1].file = "/home/u/model.cpp".into();
        with_line[1].line = Some(7);
        assert_eq!(of(with_line).short(), "model.cpp:7 model::forward");
    }

    #[test]
    fn who_only_passes_a_wish_for_memory_on_is_not_the_site() {
        let site = of(vec![
            frame("native", "malloc", "", 0, "/home/u/libown_malloc.so"),
            frame("native", "_Znwm", "", 0, "/home/u/program"),
            frame(
                "native",
                "_ZNSt15__new_allocatorIiE8allocateEmPKv",
                "/usr/include/c++/12/bits/new_allocator.h",
                137,
                "/home/u/program",
            ),
            frame(
                "native",
                "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJiEEEvv",
                "/usr/include/c++/12/bits/vector.tcc",
                440,
                "/home/u/program",
            ),
            frame("native", "_ZN5Model4growEv", "/home/u/model.cpp", 12, "/home/u/program"),
        ]);
        assert_eq!(site.short(), "model.cpp:12 Model::grow");
        // In an interpreter it is the line of Python, whatever of the interpreter's own functions lies below it.
        let site = of(vec![
            frame("native", "_PyObject_Malloc", "", 0, "/usr/bin/python3.11"),
            frame("native", "PyList_New", "", 0, "/usr/bin/python3.11"),
            frame("python", "load", "/home/u/data.py", 31, ""),
        ]);
        assert_eq!(site.short(), "data.py:31 load");
        let site = of(vec![
            frame("native", "malloc", "", 0, "/lib/x86_64-linux-gnu/libc.so.6"),
            frame("native", "png_create", "", 0, "/usr/lib/libpng.so"),
        ]);
        assert_eq!(site.short(), "png_create (libpng.so)");
        assert_eq!(of(vec![frame("native", "malloc", "", 0, "/lib/libc.so.6")]).short(), "malloc (libc.so.6)");
    }

    #[test]
    fn a_long_site_keeps_its_front() {
        let function = format!("outer::{}::inner", "x".repeat(60));
        let line =
            |text: Option<String>| Site { file: "/a/train.py".into(), line: Some(7), function: function.clone(), text };
        assert!(line(None).short().starts_with("train.py:7 ") && line(None).short().ends_with("inner"));
        let cut = line(Some("call(".repeat(40))).short();
        assert!(cut.starts_with("train.py:7 call(") && cut.ends_with("..") && cut.len() == SHORT, "{cut}");
    }

    #[test]
    fn a_lines_text_is_shown_only_of_the_source_that_ran() {
        let path = std::env::temp_dir().join(format!("gputrace-source-{}.py", std::process::id()));
        fs::write(&path, "def f():\n    loss.item()  # \x1b[31m\n").unwrap();
        let name = path.to_str().unwrap();
        let line = |began_ns: i64, line: i32| Sources::new(began_ns).line(name, line);
        assert_eq!(line(i64::MAX, 2).as_deref(), Some("loss.item()  # \u{fffd}[31m"));
        assert_eq!((line(i64::MAX, 3), line(i64::MAX, 0), line(i64::MAX, -1)), (None, None, None));
        assert_eq!(line(1, 2), None, "it was changed after the trace began");
        fs::remove_file(&path).unwrap();
        let mut sources = Sources::new(i64::MAX);
        assert_eq!(
            [name, "/etc/hostname", "/proc/self/environ", "train.py"].map(|p| sources.line(p, 1)),
            [const { None }; 4]
        );
    }
}
