//! Messages of our own: to what the program passed on or was given, while a message of its own runs.
//!
//! They go straight to the method. Which one a class has at a place of the code is asked once; where it goes, each time: another
//! one's hook may have come. It saves the runtime's look-up, and with it a third of what a message with a label took.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::{
    Class, Id, Method, Sel, class_getInstanceMethod, class_getSuperclass, method_getImplementation, objc_msgSend,
    object_getClass, sel_registerName,
};

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

    /// Of one that was looked up before.
    #[inline(always)]
    pub(crate) fn known(&self) -> Sel {
        self.known.load(Ordering::Relaxed)
    }

    #[cold]
    fn find(&self) -> Sel {
        let selector = selector(self.name);
        self.known.store(selector, Ordering::Relaxed);
        selector
    }
}

/// The selector of this name.
pub(super) fn selector(name: &CStr) -> Sel {
    // SAFETY: a C string.
    unsafe { sel_registerName(name.as_ptr()) }
}

/// The method that a class has for one selector: its place for it, wherever that leads by now. Of one that was inherited when it was asked
/// for, another that the class got itself since is not known.
pub(crate) struct Known {
    /// The class; 0: none yet, [`BEGUN`]: the method is being written.
    class: AtomicUsize,
    method: AtomicPtr<c_void>,
}

const BEGUN: usize = 1;

impl Known {
    pub(crate) const fn new() -> Known {
        Known { class: AtomicUsize::new(0), method: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The method, if it is this class's that is known.
    #[inline(always)]
    pub(crate) fn of(&self, class: Class) -> Option<Method> {
        // SYNC POINT: known. Acquire, with the Release of `learn`: who sees the class sees its method.
        (self.class.load(Ordering::Acquire) == class as usize).then(|| self.method.load(Ordering::Relaxed))
    }

    /// Remembers a class's method, if none is known; the first one stays.
    fn learn(&self, class: Class, method: Method) {
        if self.class.compare_exchange(0, BEGUN, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.method.store(method, Ordering::Relaxed);
            self.class.store(class as usize, Ordering::Release);
        }
    }

    /// The method of a class, which is remembered if there is room.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask(&self, class: Class, selector: &Selector) -> Method {
        // SAFETY: a class and a selector.
        let method = unsafe { class_getInstanceMethod(class, selector.get()) };
        if !method.is_null() {
            self.learn(class, method);
        }
        method
    }

    /// The same, remembered only where the class has it itself: it never gets another one then.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_own(&self, class: Class, selector: &Selector) -> Method {
        // SAFETY: a class, its superclass, which may be null, and a selector.
        let [method, inherited] =
            unsafe { [class, class_getSuperclass(class)].map(|class| class_getInstanceMethod(class, selector.get())) };
        if method != inherited {
            self.learn(class, method);
        }
        method
    }
}

/// What a method calls by now; null for none.
#[inline(always)]
pub(crate) fn code(method: Method) -> *const () {
    // SAFETY: null or a method of a class, which lives as long as it does.
    if method.is_null() { core::ptr::null() } else { unsafe { method_getImplementation(method) } }
}

/// The classes that answer a message at one place of the code: a driver's, and that of a layer around it. Others are asked each time.
pub(crate) struct Answers([Known; 2]);

impl Answers {
    pub(crate) const fn new() -> Answers {
        Answers([const { Known::new() }; 2])
    }

    /// What an object does whose class is the first one that was met, which was asked with the selector then.
    #[inline(always)]
    pub(crate) fn of_first(&self, object: Id) -> Option<*const ()> {
        if object.is_null() {
            return None;
        }
        let [first, _] = &self.0;
        // SAFETY: an object of the program's that a message to it is about; a method that was found has code.
        unsafe {
            let code = method_getImplementation(first.of(object_getClass(object))?);
            core::hint::assert_unchecked(!code.is_null());
            Some(code)
        }
    }

    /// The same of any other one; null where its class does not answer, and for nil.
    #[inline(never)]
    pub(crate) fn of_another(&self, object: Id, selector: &Selector) -> *const () {
        if object.is_null() {
            return core::ptr::null();
        }
        // SAFETY: an object of the program's that a message to it is about.
        let class = unsafe { object_getClass(object) };
        let [_, second] = &self.0;
        code(second.of(class).unwrap_or_else(|| self.ask(class, selector)))
    }

    #[cold]
    #[inline(never)]
    fn ask(&self, class: Class, selector: &Selector) -> Method {
        let [first, second] = &self.0;
        let place = if first.class.load(Ordering::Relaxed) == 0 { first } else { second };
        place.ask(class, selector)
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
        let (code, selector) = match ANSWERS.of_first(object) {
            Some(code) => (code, SELECTOR.known()),
            None => (ANSWERS.of_another(object, &SELECTOR), SELECTOR.get()),
        };
        if code.is_null() {
            // SAFETY: a number or a pointer, of which zero is a value.
            unsafe { core::mem::zeroed::<$result>() }
        } else {
            // SAFETY: the method of this selector that the object's class has, and whose signature this is.
            unsafe {
                let code: Code = core::mem::transmute(code);
                code(object, selector $($(, $value)*)?)
            }
        }
    }};
}
pub(crate) use send;

/// A new object of a class. By the runtime, which gets a class ready before its first message.
pub(crate) fn new(class: Class) -> Id {
    type Code = unsafe extern "C" fn(Class, Sel) -> Id;
    if class.is_null() {
        return class;
    }
    // SAFETY: each class of Metal's has the method, and this is its signature.
    unsafe {
        let code: Code = core::mem::transmute(objc_msgSend as *const ());
        code(class, selector(c"new"))
    }
}

/// The bytes of an NSString; none of nil. They live as long as the string, or the pool around this.
#[inline(always)]
pub(crate) fn text<'a>(string: Id) -> Option<&'a CStr> {
    // SAFETY: null or a C string.
    bytes(string).map(|bytes| unsafe { CStr::from_ptr(bytes) })
}

/// The first bytes of an NSString, as many as they may be, up to the end of a character; none of nil.
#[inline(always)]
pub(crate) fn text_up_to<'a>(string: Id, most: usize) -> Option<&'a [u8]> {
    let bytes = bytes(string)?;
    // SAFETY: a C string, whose end the search does not pass; so many bytes of it are there, and one more where it found no end.
    let (text, next): (&[u8], u8) = unsafe {
        let length = libc::strnlen(bytes, most);
        (core::slice::from_raw_parts(bytes.cast(), length), *bytes.cast::<u8>().add(length))
    };
    if next & CONTINUES == CONTINUED { Some(whole_characters(text)) } else { Some(text) }
}

/// The bits of a byte of UTF-8 that say whether it goes on with a character, and those that do.
const CONTINUES: u8 = 0xc0;
const CONTINUED: u8 = 0x80;

/// A text without its last character, which was cut.
#[cold]
fn whole_characters(text: &[u8]) -> &[u8] {
    let begin = text.iter().rposition(|byte| byte & CONTINUES != CONTINUED);
    begin.and_then(|begin| text.get(..begin)).unwrap_or(text)
}

#[inline(always)]
fn bytes(string: Id) -> Option<*const c_char> {
    Some(send!(string, "UTF8String"; *const c_char)).filter(|bytes| !bytes.is_null())
}
