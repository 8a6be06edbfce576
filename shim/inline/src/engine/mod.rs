//! What writes the jump into a function and moves the instructions that it replaces: a library's work.
//!
//! One trait, so that a build can choose. dobby-hook builds everywhere, in Rust alone. Frida's builds with the cargo
//! feature `frida`, which needs a devkit that no package registry carries. Others were looked at: retour and
//! procmod-hook are for x86 only, bhook has no way back to the original, ilhook crashed on an instruction that refers
//! to data by its own address.

#[cfg(not(feature = "frida"))]
mod dobby;
#[cfg(feature = "frida")]
mod gum;
#[cfg(not(feature = "frida"))]
mod near;

/// An engine.
pub(crate) trait Engine {
    /// Lets `function` jump to `replacement`. Returns where its original goes on; none when nothing was changed.
    ///
    /// # Safety
    /// Nobody runs the function, and it was examined.
    unsafe fn replace(&mut self, function: usize, replacement: usize) -> Option<usize>;
}

/// The engine of this build.
#[cfg(not(feature = "frida"))]
pub(crate) fn chosen() -> impl Engine {
    dobby::Dobby::new()
}

/// The engine of this build.
#[cfg(feature = "frida")]
pub(crate) fn chosen() -> impl Engine {
    gum::Gum::new()
}
