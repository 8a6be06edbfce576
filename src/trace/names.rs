//! Names behind ids, and how they are shown.
//!
//! Kernels are stored mangled, as the driver gave them. They are shown demangled (C++ and Rust), without control
//! characters, and in text shortened to what tells them apart; JSON has them in full.

pub(crate) use gputrace_collectors::demangle::{full_name, printable};
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::wide::{back, columns_of, front};
use super::{Filter, Trace, Want};

/// Stands for a missing `name_id`: real ids are not negative.
pub(crate) const NO_NAME: i64 = -1;

/// Stands for all names that found no place of their own in a pass.
const OTHERS: i64 = -2;

/// The names that a report needs.
#[derive(Debug, Default)]
pub(crate) struct Names(FxHashMap<i64, String>);

impl Trace {
    /// Reads the names of these ids and no others: a trace may hold a million.
    pub(crate) fn names(&self, ids: &FxHashSet<i64>) -> Names {
        let mut names = Names::default();
        let want = [Want { table: TableId::Names, columns: &["name_id", "name"] }];
        self.scan(&want, &Filter::default(), &mut |rows| {
            let texts = rows.texts("name");
            for (row, id) in rows.i64("name_id").iter().enumerate() {
                if ids.contains(id) {
                    names.0.entry(*id).or_insert_with(|| texts.get(row).to_owned());
                }
            }
        });
        names
    }
}

impl Trace {
    /// What programs call their queues of Metal, by process and queue.
    pub(crate) fn queue_names(&self) -> FxHashMap<(i64, i64), String> {
        const MOST: usize = 10_000;
        let mut labels = FxHashMap::default();
        let want = Want { table: TableId::CommandBuffers, columns: &["queue", "queue_name_id"] };
        self.scan(&[want], &Filter::default(), &mut |rows| {
            let (process, queue) = (rows.i64("process_id"), rows.i64("queue"));
            for (row, label) in rows.i64_or("queue_name_id", NO_NAME).iter().enumerate() {
                if *label != NO_NAME && labels.len() < MOST {
                    labels.insert((process[row], queue[row]), *label);
                }
            }
        });
        let names = self.names(&labels.values().copied().collect());
        labels.into_iter().map(|(queue, label)| (queue, names.full(label))).collect()
    }
}

/// What those are called that are counted together.
pub(crate) const ALL_OTHERS: &str = "(all others)";

impl Names {
    /// The name, demangled, in full.
    pub(crate) fn full(&self, id: i64) -> String {
        match self.0.get(&id) {
            Some(name) => full_name(name),
            None if id == NO_NAME => "(name not known)".to_owned(),
            None if id == OTHERS => ALL_OTHERS.to_owned(),
            None => format!("(name {id:x} missing in the trace)"),
        }
    }

    /// Names from pairs.
    #[cfg(test)]
    pub(crate) fn from_pairs(pairs: &[(i64, &str)]) -> Names {
        Names(pairs.iter().map(|(id, name)| (*id, (*name).to_owned())).collect())
    }
}

/// A name that fits `width` columns: template arguments go first, from the innermost, then the middle.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    if columns_of(name) <= width {
        return name.to_owned();
    }
    let depth = |limit: usize| {
        let mut level = 0usize;
        let mut out = String::new();
        for c in name.chars() {
            match c {
                '<' => {
                    level += 1;
                    if level <= limit {
                        out.push(c);
                    } else if level == limit + 1 {
                        out.push_str("<..");
                    }
                }
                '>' if level > 0 => {
                    if level <= limit + 1 {
                        out.push(c);
                    }
                    level -= 1;
                }
                c if level <= limit => out.push(c),
                _ => {}
            }
        }
        out
    };
    for limit in (0..3).rev() {
        let shorter = depth(limit);
        if columns_of(&shorter) <= width {
            return shorter;
        }
    }
    let shorter = Some(depth(0)).filter(|shorter| columns_of(shorter) >= width).unwrap_or_else(|| name.to_owned());
    // The end of a name tells more than its namespaces do.
    let head = width.saturating_sub(2) / 3;
    let tail = width.saturating_sub(2) - head;
    format!("{}..{}", front(&shorter, head), back(&shorter, tail))
}

/// What CUPTI's users call a copy or set that the GPU made: `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`. Of the table's texts.
pub(crate) fn copy_name(kind: &str, direction: &str, memory: [&str; 2]) -> String {
    let [from, to] = memory.map(|text| {
        let mut letters = text.chars();
        letters.next().map_or("Unknown".to_owned(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    if kind == "set" { format!("Memset ({to})") } else { format!("Memcpy {direction} ({from} -> {to})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_shown_as_in_their_source() {
        let names = Names::from_pairs(&[
            (1, "_ZN2at6native13reduce_kernelILi512ELi1EEEvPf"),
            (2, "_ZN5saxpy6kernel17h0123456789abcdefE"),
            (3, "plain_kernel"),
            (4, "bad\u{1b}[31m\nname"),
            (5, "_Znotmangled!"),
        ]);
        assert_eq!(names.full(1), "at::native::reduce_kernel<512, 1>");
        assert_eq!(names.full(2), "saxpy::kernel");
        assert_eq!(names.full(3), "plain_kernel");
        assert_eq!(names.full(4), "bad\u{fffd}[31m\u{fffd}name");
        assert_eq!(names.full(5), "_Znotmangled!");
        assert_eq!(names.full(NO_NAME), "(name not known)");
    }

    #[test]
    fn long_names_keep_what_tells_them_apart() {
        let name = "void at::native::elementwise<4, at::native::Fill<float>, std::array<char*, 1ul>>";
        assert_eq!(shortened(name, 200), name);
        assert_eq!(shortened(name, 70), "void at::native::elementwise<4, at::native::Fill<..>, std::array<..>>");
        assert_eq!(shortened(name, 40), "void at::native::elementwise<..>");
        assert_eq!(shortened(name, 20).chars().count(), 20);
        assert_eq!(shortened("<<<<>>>>>>a<b", 5).chars().count(), 5);
        for width in 0..30 {
            assert!(shortened(name, width).chars().count() <= width.max(2));
        }
    }
}
