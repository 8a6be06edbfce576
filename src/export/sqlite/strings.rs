//! Texts, each once, by number.

use std::io;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::database::Database;
use super::sheets::STRINGS;
use crate::spilled::Numbers;
use crate::trace::{NO_NAME, Texts, Trace, full_name};

/// Names whose numbers are kept; those of others are looked up by their texts again.
const MOST_NAMED: usize = 50_000;

/// A kernel's three names: as in the source, its function's alone, and as the driver has it.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) demangled: i64,
    pub(super) short: i64,
    pub(super) mangled: i64,
}

/// The texts so far.
pub(super) struct Strings {
    numbers: Numbers,
    /// Names of the trace, as recorded.
    names: Texts,
    named: FxHashMap<i64, Named>,
}

impl Strings {
    pub(super) fn read(trace: &Trace) -> io::Result<Strings> {
        let names = trace.every_name(str::to_owned)?;
        Ok(Strings { numbers: Numbers::default(), names, named: FxHashMap::default() })
    }

    /// A name of the trace, as recorded.
    pub(super) fn text(&self, name_id: i64) -> io::Result<Rc<str>> {
        Ok(self.names.get(name_id)?.unwrap_or_else(|| "(name not known)".into()))
    }

    /// A name that there is.
    pub(super) fn known(&self, name_id: i64) -> io::Result<Option<Rc<str>>> {
        if name_id == NO_NAME { Ok(None) } else { self.names.get(name_id) }
    }

    /// Adds a name to the trace's. Whether it is new.
    pub(super) fn learn(&mut self, name_id: i64, text: &str) -> io::Result<bool> {
        let is_new = self.names.get(name_id)?.is_none();
        self.names.insert(name_id, text.into())?;
        Ok(is_new)
    }

    /// The number of a text, which is written when it is new.
    pub(super) fn number(&mut self, to: &mut Database, text: &str) -> io::Result<i64> {
        let (number, is_new) = self.numbers.of(text)?;
        if is_new {
            to.insert(&STRINGS, &[number.into(), text.into()])?;
        }
        Ok(number)
    }

    /// The numbers of a name of the trace.
    pub(super) fn named(&mut self, to: &mut Database, name_id: i64) -> io::Result<Named> {
        if let Some(named) = self.named.get(&name_id) {
            return Ok(*named);
        }
        let mangled = self.text(name_id)?;
        let demangled = full_name(&mangled);
        let named = Named {
            short: self.number(to, short(&demangled))?,
            demangled: self.number(to, &demangled)?,
            mangled: self.number(to, &mangled)?,
        };
        if self.named.len() >= MOST_NAMED {
            self.named.clear();
        }
        self.named.insert(name_id, named);
        Ok(named)
    }
}

/// A function's own name: without its result, namespaces, and the arguments of templates and of itself.
fn short(name: &str) -> &str {
    let from = name.strip_prefix("void ").unwrap_or(name);
    let (mut depth, mut start, mut end) = (0usize, 0, from.len());
    for (at, c) in from.char_indices() {
        match c {
            '<' if depth == 0 && at > start => (depth, end) = (1, at),
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            // `(anonymous namespace)` is one, too.
            '(' if depth == 0 && at > start => {
                end = end.min(at);
                break;
            }
            ':' if depth == 0 && from[at + 1..].starts_with(':') => (start, end) = (at + 2, from.len()),
            _ => {}
        }
    }
    match &from[start..end] {
        "" => name,
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_kernels_short_name_is_its_functions() {
        for (name, own) in [
            ("add", "add"),
            ("void add(float*)", "add"),
            ("cutlass::Kernel2<cutlass_80_tensorop_s1688gemm<1, 2> >", "Kernel2"),
            ("void at::native::(anonymous namespace)::softmax<float, 4>(float*, int)", "softmax"),
            ("a<b::c>::d<e>", "d"),
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            ),
            ("<odd>", "<odd>"),
            ("", ""),
        ] {
            assert_eq!(short(name), own, "{name}");
        }
    }
}
