//! The libraries of this process: which one is the shim, which the driver, who else defines the driver's functions.

use std::collections::HashSet;

use gputrace_abi::patches::{self, Driver, Patches};

use crate::elf::Library;
use crate::{LinkMap, patch};

const DRIVER: &[u8] = b"libcuda.so.1";
const SHIM: &[u8] = b"libgputrace.so";
/// The namespace of the program.
const BASE: isize = 0;

/// A library that was mapped, and that `complete` has not looked at yet.
struct Opened {
    library: Library,
    path: usize,
    namespace: isize,
    cookie: usize,
}

/// What is known of the process.
pub(crate) struct Process {
    opened: Vec<Opened>,
    shim: Option<Library>,
    /// Cookie of the driver that was patched. There is one: the hooks know one original each.
    driver: Option<usize>,
    /// Functions of the driver's that other libraries of the program define.
    interposed: Option<HashSet<Vec<u8>>>,
}

impl Process {
    pub(crate) const fn new() -> Process {
        Process { opened: Vec::new(), shim: None, driver: None, interposed: None }
    }

    /// # Safety
    /// The loader has just mapped this library.
    pub(crate) unsafe fn opened(&mut self, map: &LinkMap, namespace: isize, cookie: usize) {
        // SAFETY: the caller's promise.
        if let Some(library) = unsafe { Library::at(map.base, map.dynamic) } {
            self.opened.push(Opened { library, path: map.name as usize, namespace, cookie });
        }
    }

    /// # Safety
    /// What was opened is mapped, and nobody can have called it.
    pub(crate) unsafe fn complete(&mut self) {
        let opened = std::mem::take(&mut self.opened);
        for one in opened.iter().filter(|one| one.namespace == BASE) {
            // SAFETY: the library is mapped.
            match unsafe { one.library.soname() } {
                SHIM => self.shim = Some(one.library),
                DRIVER => {}
                // SAFETY: as above.
                _ => unsafe { self.note_definitions(&one.library) },
            }
        }
        let Some(shim) = self.shim else { return };
        // SAFETY: the shim is never unloaded, and its variable has this type.
        let Some(table) = (unsafe { shim.variable(patches::SYMBOL).map(|at| &*(at as *const Patches)) }) else {
            return;
        };
        // SAFETY: as above.
        let is_driver = |one: &&Opened| unsafe { one.library.soname() } == DRIVER;
        for one in opened.iter().filter(is_driver) {
            if self.driver.is_some() {
                continue; // a second copy: its calls would go to the first
            }
            table.clear();
            let interposed = self.interposed.get_or_insert_default();
            // SAFETY: both are mapped, and nobody can have called the driver.
            unsafe { patch::driver(&one.library, &shim, table, interposed) };
            table.publish(Driver {
                base: one.library.base(),
                dynamic: one.library.dynamic(),
                namespace: one.namespace,
                path: one.path,
            });
            self.driver = Some(one.cookie);
        }
    }

    pub(crate) fn closed(&mut self, cookie: usize) {
        self.opened.retain(|one| one.cookie != cookie);
        if self.driver == Some(cookie) {
            self.driver = None;
            // SAFETY: the shim is never unloaded, and its variable has this type.
            let table = self.shim.and_then(|shim| unsafe { shim.variable(patches::SYMBOL) });
            if let Some(at) = table {
                // SAFETY: as above.
                unsafe { &*(at as *const Patches) }.withdraw();
            }
        }
    }

    /// # Safety
    /// The library is mapped.
    unsafe fn note_definitions(&mut self, library: &Library) {
        let names = self.interposed.get_or_insert_default();
        // SAFETY: the caller's promise.
        let functions = unsafe { library.functions() };
        names.extend(functions.filter(|f| f.name.starts_with(b"cu")).map(|f| f.name.to_vec()));
    }
}
