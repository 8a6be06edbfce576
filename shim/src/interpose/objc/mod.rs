//! Objective-C's runtime: the few functions that we call.
//!
//! Objects belong to the program: they are looked at while a message to them runs, and neither retained nor kept.

mod classes;
mod encoding;
mod sending;
mod strangers;

use core::ffi::{c_char, c_void};

pub(crate) use classes::{Message, Originals, Role};
use sending::selector;
pub(crate) use sending::{Answers, Known, Selector, code, new, send, text, text_up_to};

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
    fn objc_msgSend();
    pub(crate) fn objc_getClass(name: *const c_char) -> Class;
    fn sel_registerName(name: *const c_char) -> Sel;
    pub(crate) fn object_getClass(object: Id) -> Class;
    pub(crate) fn class_getSuperclass(class: Class) -> Class;
    fn class_getName(class: Class) -> *const c_char;
    fn class_getInstanceMethod(class: Class, selector: Sel) -> Method;
    pub(crate) fn class_addMethod(class: Class, selector: Sel, code: *const (), types: *const c_char) -> u8;
    pub(crate) fn class_replaceMethod(class: Class, selector: Sel, code: *const (), types: *const c_char) -> *const ();
    fn method_getImplementation(method: Method) -> *const ();
    fn method_setImplementation(method: Method, code: *const ()) -> *const ();
    fn method_getTypeEncoding(method: Method) -> *const c_char;
}
