//! Modules and libraries. Any bytes are an image, and any name that a client asks for is a kernel in it, except one
//! that begins with `missing_`. An image that begins with `fakecuda:` lists its kernels, `fakecuda:first,second`, and
//! holds no others. A file must exist to be loaded.

use crate::codes::*;
use crate::kernel::{attributes, computes, duration_ns, host_ns};
use crate::memory::{self, Kind};
use crate::state::{Driver, driver, out, put};
use crate::table::{R, driver as functions};
use crate::timeline::{busy_until, now};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

pub(crate) struct Module {
    pub(crate) image: Image,
    /// The library that it was made for.
    pub(crate) library: u64,
}

pub(crate) struct Library {
    pub(crate) image: Image,
    pub(crate) module: u64,
}

/// The names in an image, as far as they are known.
#[derive(Clone, Default)]
pub(crate) struct Image {
    /// The names it lists; without a list every name is in it.
    listed: Option<Vec<CString>>,
    /// Handles given out, in order of first look-up.
    functions: Vec<(CString, u64)>,
    globals: HashMap<CString, u64>,
}

/// A CUfunction, or a CUkernel when it belongs to a library.
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) symbol: CString,
    pub(crate) ns: u64,
    /// Time that its first launch takes to load it; 0 when that is done.
    pub(crate) load_ns: u64,
    /// That waits for the whole device.
    pub(crate) load_waits: bool,
    pub(crate) computes: bool,
    pub(crate) owner: Owner,
    pub(crate) attributes: [i32; 18],
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Owner {
    Module(u64),
    Library(u64),
}

const MARK: &[u8] = b"fakecuda:";
const GLOBAL_BYTES: u64 = 4096;

impl Image {
    /// Looks at an image of unknown length: no byte is read that the mark does not vouch for.
    pub(crate) unsafe fn of(bytes: *const u8) -> R<Image> {
        if bytes.is_null() {
            return Err(INVALID_VALUE);
        }
        if !(0..MARK.len()).all(|i| unsafe { *bytes.add(i) } == MARK[i]) {
            return Ok(Image::default());
        }
        let text = unsafe { CStr::from_ptr(bytes.add(MARK.len()).cast()) }.to_bytes();
        let names = text.split(|b| *b == b',').map(|name| name.trim_ascii()).filter(|name| !name.is_empty());
        busy_until(now() + host_ns(&String::from_utf8_lossy(text), "compile_us_"));
        Ok(Image { listed: Some(names.filter_map(|name| CString::new(name).ok()).collect()), ..Image::default() })
    }

    unsafe fn of_file(path: *const c_char) -> R<Image> {
        if path.is_null() {
            return Err(INVALID_VALUE);
        }
        let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| FILE_NOT_FOUND)?;
        let mut bytes = std::fs::read(path).map_err(|_| FILE_NOT_FOUND)?;
        bytes.push(0);
        bytes.resize(bytes.len().max(MARK.len()), 0);
        unsafe { Image::of(bytes.as_ptr()) }
    }

    fn has(&self, name: &CStr) -> bool {
        match &self.listed {
            Some(listed) => listed.iter().any(|other| other.as_c_str() == name),
            None => !name.is_empty() && !name.to_bytes().starts_with(b"missing_"),
        }
    }
}

impl Driver {
    pub(crate) fn image(&mut self, owner: Owner) -> R<&mut Image> {
        match owner {
            Owner::Module(module) => self.modules.get_mut(module).map(|m| &mut m.image).ok_or(INVALID_HANDLE),
            Owner::Library(library) => self.libraries.get_mut(library).map(|l| &mut l.image).ok_or(INVALID_HANDLE),
        }
    }

    /// The function or kernel of a name: the same handle every time.
    pub(crate) fn look_up(&mut self, owner: Owner, name: &CStr) -> R<u64> {
        let image = self.image(owner)?;
        if let Some((_, handle)) = image.functions.iter().find(|(known, _)| known.as_c_str() == name) {
            return Ok(*handle);
        }
        if !image.has(name) {
            return Err(NOT_FOUND);
        }
        let text: Arc<str> = Arc::from(name.to_string_lossy());
        let (ns, computes) = (duration_ns(&text), computes(&text));
        let waits_ns = host_ns(&text, "load_waits_us_");
        let (load_ns, load_waits) = (host_ns(&text, "load_us_").max(waits_ns), waits_ns > 0);
        let (attributes, symbol) = (attributes(&text), name.to_owned());
        let function =
            Function { name: text, symbol: symbol.clone(), ns, load_ns, load_waits, computes, owner, attributes };
        let handle = self.functions.insert(function) | u64::from(computes);
        self.image(owner)?.functions.push((symbol, handle));
        Ok(handle)
    }

    pub(crate) fn function(&self, handle: u64) -> R<&Function> {
        self.functions.get(handle & !1).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn function_mut(&mut self, handle: u64) -> R<&mut Function> {
        self.functions.get_mut(handle & !1).ok_or(INVALID_HANDLE)
    }

    /// The module that a function's code is in, while it is loaded.
    pub(crate) fn module_of(&self, function: &Function) -> Option<u64> {
        match function.owner {
            Owner::Module(module) => self.modules.get(module).map(|_| module),
            Owner::Library(library) => self.libraries.get(library).map(|l| l.module),
        }
    }

    pub(crate) fn new_module(&mut self, image: Image) -> R<u64> {
        self.current()?;
        self.refuse_in_capture()?;
        Ok(self.modules.insert(Module { image, library: 0 }))
    }

    pub(crate) fn new_library(&mut self, image: Image) -> u64 {
        let module = self.modules.insert(Module { image: image.clone(), library: 0 });
        let library = self.libraries.insert(Library { image, module });
        if let Some(module) = self.modules.get_mut(module) {
            module.library = library;
        }
        library
    }

    pub(crate) fn unload(&mut self, mut image: Image) {
        for (_, function) in image.functions.drain(..) {
            self.functions.remove(function & !1);
        }
        for (_, address) in image.globals.drain() {
            self.memory.release(address);
        }
    }

    /// A variable of an image: device memory that is made when it is first asked for.
    pub(crate) fn global(&mut self, owner: Owner, name: &CStr, kind: Kind) -> R<u64> {
        let image = self.image(owner)?;
        if let Some(address) = image.globals.get(name) {
            return Ok(*address);
        }
        if name.is_empty() || name.to_bytes().starts_with(b"missing_") {
            return Err(NOT_FOUND);
        }
        let device = self.current_device()?;
        let address = self.memory.allocate(kind, GLOBAL_BYTES, memory::Owner { device, ..memory::Owner::default() })?;
        unsafe { (address as *mut u8).write_bytes(0, GLOBAL_BYTES as usize) };
        self.image(owner)?.globals.insert(name.to_owned(), address);
        Ok(address)
    }

    /// The names an image lists or was asked for, each with its handle.
    pub(crate) fn all_functions(&mut self, owner: Owner) -> R<Vec<u64>> {
        if let Some(listed) = self.image(owner)?.listed.clone() {
            return listed.iter().map(|name| self.look_up(owner, name)).collect();
        }
        Ok(self.image(owner)?.functions.iter().map(|(_, handle)| *handle).collect())
    }
}

pub(crate) unsafe fn name<'a>(pointer: *const c_char) -> R<&'a CStr> {
    if pointer.is_null() { Err(INVALID_VALUE) } else { Ok(unsafe { CStr::from_ptr(pointer) }) }
}

fn load(result: &mut u64, image: Image) -> R {
    *result = driver()?.new_module(image)?;
    Ok(())
}

functions! {
    fn cuModuleLoad(result: *mut u64, path: *const c_char) = "cuModuleLoad" 2000 |_| {
        load(out(result)?, Image::of_file(path)?)
    }
    fn cuModuleLoadData(result: *mut u64, image: *const u8) = "cuModuleLoadData" 2000 |_| {
        load(out(result)?, Image::of(image)?)
    }
    fn cuModuleLoadDataEx(result: *mut u64, image: *const u8, _count: u32, _options: *mut u32, _values: *mut u64)
        = "cuModuleLoadDataEx" 2010 |_| { load(out(result)?, Image::of(image)?) }
    fn cuModuleLoadFatBinary(result: *mut u64, image: *const u8) = "cuModuleLoadFatBinary" 2000 |_| {
        load(out(result)?, Image::of(image)?)
    }
    fn cuModuleUnload(module: u64) = "cuModuleUnload" 2000 |_| {
        let mut d = driver()?;
        d.current()?;
        if d.modules.get(module).ok_or(INVALID_HANDLE)?.library != 0 {
            return Err(INVALID_HANDLE);
        }
        if let Some(module) = d.modules.remove(module) {
            d.unload(module.image);
        }
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: *mut u32) = "cuModuleGetLoadingMode" 11070 |_| {
        crate::state::ready()?;
        *out(mode)? = 2;
        Ok(())
    }
    fn cuModuleGetFunction(result: *mut u64, module: u64, symbol: *const c_char) = "cuModuleGetFunction" 2000 |_| {
        *out(result)? = driver()?.look_up(Owner::Module(module), name(symbol)?)?;
        Ok(())
    }
    fn cuModuleGetFunctionCount(count: *mut u32, module: u64) = "cuModuleGetFunctionCount" 12040 |_| {
        *out(count)? = driver()?.all_functions(Owner::Module(module))?.len() as u32;
        Ok(())
    }
    fn cuModuleEnumerateFunctions(list: *mut u64, length: u32, module: u64) = "cuModuleEnumerateFunctions" 12040 |_| {
        let all = driver()?.all_functions(Owner::Module(module))?;
        out(list)?;
        all.iter().take(length as usize).enumerate().for_each(|(i, handle)| *list.add(i) = *handle);
        Ok(())
    }
    fn cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: u64, symbol: *const c_char)
        = "cuModuleGetGlobal" 3020 |_| {
        let found = driver()?.global(Owner::Module(module), name(symbol)?, Kind::Device)?;
        put(address, found);
        put(bytes, GLOBAL_BYTES as usize);
        Ok(())
    }
    fn cuLibraryLoadData(result: *mut u64, image: *const u8, _jit: *mut u32, _jit_values: *mut u64, _jit_count: u32,
        _options: *mut u32, _values: *mut u64, _count: u32) = "cuLibraryLoadData" 12000 |_| {
        let image = Image::of(image)?;
        *out(result)? = driver()?.new_library(image);
        Ok(())
    }
    fn cuLibraryLoadFromFile(result: *mut u64, path: *const c_char, _jit: *mut u32, _jit_values: *mut u64,
        _jit_count: u32, _options: *mut u32, _values: *mut u64, _count: u32) = "cuLibraryLoadFromFile" 12000 |_| {
        let image = Image::of_file(path)?;
        *out(result)? = driver()?.new_library(image);
        Ok(())
    }
    fn cuLibraryUnload(library: u64) = "cuLibraryUnload" 12000 |_| {
        let mut d = driver()?;
        let library = d.libraries.remove(library).ok_or(INVALID_HANDLE)?;
        d.unload(library.image);
        if let Some(module) = d.modules.remove(library.module) {
            d.unload(module.image);
        }
        Ok(())
    }
    fn cuLibraryGetKernel(result: *mut u64, library: u64, symbol: *const c_char) = "cuLibraryGetKernel" 12000 |_| {
        *out(result)? = driver()?.look_up(Owner::Library(library), name(symbol)?)?;
        Ok(())
    }
    fn cuLibraryGetModule(result: *mut u64, library: u64) = "cuLibraryGetModule" 12000 |_| {
        let d = driver()?;
        d.current()?;
        *out(result)? = d.libraries.get(library).ok_or(INVALID_HANDLE)?.module;
        Ok(())
    }
    fn cuLibraryGetKernelCount(count: *mut u32, library: u64) = "cuLibraryGetKernelCount" 12040 |_| {
        *out(count)? = driver()?.all_functions(Owner::Library(library))?.len() as u32;
        Ok(())
    }
    fn cuLibraryEnumerateKernels(list: *mut u64, length: u32, library: u64) = "cuLibraryEnumerateKernels" 12040 |_| {
        let all = driver()?.all_functions(Owner::Library(library))?;
        out(list)?;
        all.iter().take(length as usize).enumerate().for_each(|(i, handle)| *list.add(i) = *handle);
        Ok(())
    }
    fn cuLibraryGetGlobal(address: *mut u64, bytes: *mut usize, library: u64, symbol: *const c_char)
        = "cuLibraryGetGlobal" 12000 |_| {
        let found = driver()?.global(Owner::Library(library), name(symbol)?, Kind::Device)?;
        put(address, found);
        put(bytes, GLOBAL_BYTES as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(address: *mut u64, bytes: *mut usize, library: u64, symbol: *const c_char)
        = "cuLibraryGetManaged" 12000 |_| {
        let found = driver()?.global(Owner::Library(library), name(symbol)?, Kind::Managed)?;
        put(address, found);
        put(bytes, GLOBAL_BYTES as usize);
        Ok(())
    }
    fn cuLibraryGetUnifiedFunction(_function: *mut *mut c_void, library: u64, symbol: *const c_char)
        = "cuLibraryGetUnifiedFunction" 12000 |_| {
        driver()?.libraries.get(library).ok_or(INVALID_HANDLE)?;
        name(symbol)?;
        Err(NOT_FOUND)
    }
}
