//! Objective-C's runtime: the few functions that we call, and messages.
//!
//! Objects belong to the program: they are looked at while a message to them runs, and neither retained nor kept.

mod classes;
mod encoding;
mod strangers;

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

pub(crate) use classes::{Message, Originals, Role};

/// An object; null is nil.
pub(crate) type Id = *mut c_void;
/// A selector. Two pointers of one name may differ, so they are never compared.
pub(crate) type Sel = *mut c_void;
/// A class.
pub(crate) type Class = *mut c_void;
/// A method of a class.
pub(crate) type Method = *mut c_void;

#[link(name = "objc")]
unsafe extern "C" {
    pub(crate) fn objc_msgSend();
    pub(crate) fn objc_getClass(name: *const c_char) -> Class;
    fn sel_registerName(name: *const c_char) -> Sel;
    pub(crate) fn object_getClass(object: Id) -> Class;
    pub(crate) fn class_getSuperclass(class: Class) -> Class;
    fn class_getName(class: Class) -> *const c_char;
    fn class_getInstanceMethod(class: Class, selector: Sel) -> Method;
    fn class_getMethodImplementation(class: Class, selector: Sel) -> *const ();
    fn class_addMethod(class: Class, selector: Sel, code: *const (), types: *const c_char) -> u8;
    fn method_getImplementation(method: Method) -> *const ();
    fn method_setImplementation(method: Method, code: *const ()) -> *const ();
    fn method_getTypeEncoding(method: Method) -> *const c_char;
}

/// A selector that is looked up once.
pub(crate) struct Selector {
    name: &'static CStr,
    known: AtomicPtr<c_void>,
}

impl Selector {
    pub(crate) const fn new(name: &'static CStr) -> Selector {
        Selector { name, known: AtomicPtr::new(core::ptr::null_mut()) }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Sel {
        let known = self.known.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> Sel {
        let selector = selector(self.name);
        self.known.store(selector, Ordering::Relaxed);
        selector
    }
}

/// The selector of this name.
fn selector(name: &CStr) -> Sel {
    // SAFETY: a C string.
    unsafe { sel_registerName(name.as_ptr()) }
}

/// What a message to this object calls.
#[inline(always)]
pub(crate) fn method(object: Id, selector: &Selector) -> *const () {
    // SAFETY: the object that is sent a message, and a selector.
    unsafe { class_getMethodImplementation(object_getClass(object), selector.get()) }
}

/// A class that answers a message: the last one that was asked, at one place of the code.
pub(crate) struct Answers(AtomicPtr<c_void>);

impl Answers {
    pub(crate) const fn new() -> Answers {
        Answers(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Whether an object's class answers this message. Each class is asked once, unless those of one place alternate.
    #[inline(always)]
    pub(crate) fn does(&self, object: Id, selector: &Selector) -> bool {
        if object.is_null() {
            return false;
        }
        // SAFETY: an object of the program's that a message to it is about.
        let class = unsafe { object_getClass(object) };
        self.0.load(Ordering::Relaxed) == class || self.ask(class, selector)
    }

    #[cold]
    #[inline(never)]
    fn ask(&self, class: Class, selector: &Selector) -> bool {
        // SAFETY: a class and a selector.
        let answers = !unsafe { class_getInstanceMethod(class, selector.get()) }.is_null();
        if answers {
            self.0.store(class, Ordering::Relaxed);
        }
        answers
    }
}

/// Sends a message: `send!(object, "selector:", (value: type) -> result)`. To nil, and to an object whose class does not answer it: nothing,
/// and the result is zero. What the program passes on as a Metal object may have no more of one than the program itself asks.
macro_rules! send {
    ($object:expr, $selector:literal $(, ($($value:expr => $type:ty),*))? ; $result:ty) => {{
        static SELECTOR: $crate::interpose::objc::Selector = $crate::interpose::objc::Selector::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!($selector, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
        );
        type Code = unsafe extern "C" fn(
            $crate::interpose::objc::Id,
            $crate::interpose::objc::Sel $($(, $type)*)?
        ) -> $result;
        static ANSWERS: $crate::interpose::objc::Answers = $crate::interpose::objc::Answers::new();
        let object: $crate::interpose::objc::Id = $object;
        if ANSWERS.does(object, &SELECTOR) {
            // SAFETY: the runtime's function passes all on to the method, which is there, and whose signature this is.
            unsafe {
                let code: Code = core::mem::transmute($crate::interpose::objc::objc_msgSend as *const ());
                code(object, SELECTOR.get() $($(, $value)*)?)
            }
        } else {
            // SAFETY: a number or a pointer, of which zero is a value.
            unsafe { core::mem::zeroed::<$result>() }
        }
    }};
}
pub(crate) use send;

/// The bytes of an NSString; none of nil. They live as long as the string, or the pool around this.
pub(crate) fn text<'a>(string: Id) -> Option<&'a CStr> {
    if string.is_null() {
        return None;
    }
    let bytes = send!(string, "UTF8String"; *const c_char);
    // SAFETY: null or a C string.
    (!bytes.is_null()).then(|| unsafe { CStr::from_ptr(bytes) })
}
