//! NVTX: ranges and moments, with the names of their domains and categories; and calls of NCCL, which nsys has as ranges.

use std::io;

use gputrace_collectors::names::{NameKind, id};
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Export;
use super::database::Cell;
use super::sheets::NVTX;
use super::strings::Strings;
use crate::trace::{NO_NAME, Rows, Want};

/// Types of events.
const CATEGORY: i64 = 33;
const MARK: i64 = 34;
const PUSH_POP: i64 = 59;
const START_END: i64 = 60;
const DOMAIN: i64 = 75;

/// The domain of NCCL's own ranges.
const NCCL: &str = "NCCL";

/// What is read.
pub(super) const WANTS: &[Want] = &[
    Want {
        table: TableId::Ranges,
        columns: &[
            "end_ns",
            "tid",
            "correlation_id",
            "kind",
            "name_id",
            "domain_id",
            "category",
            "category_id",
            "color",
            "payload_int",
            "payload_float",
        ],
    },
    Want { table: TableId::Collectives, columns: &["api_ns", "tid", "api_id"] },
];

/// The domains so far: they have numbers, in every process the same; the default domain has 0.
pub(super) struct Domains {
    numbers: FxHashMap<i64, i64>,
    /// NCCL told NVTX of its calls.
    nccl: bool,
    /// What was named, by thread's process: domains, and categories of domains.
    named: FxHashSet<(i64, i64, Option<i64>)>,
}

impl Domains {
    pub(super) fn new(strings: &mut Strings) -> io::Result<Domains> {
        let nccl = !strings.learn(id(NameKind::Domain, NCCL), NCCL)?;
        Ok(Domains { numbers: FxHashMap::default(), nccl, named: FxHashSet::default() })
    }
}

impl Export<'_> {
    /// The number of a domain, which is named when its process first has it.
    fn domain(&mut self, start: i64, process: i64, tid: i64, name_id: i64) -> io::Result<i64> {
        if name_id == NO_NAME {
            return Ok(0);
        }
        let next = self.domains.numbers.len() as i64 + 1;
        let number = *self.domains.numbers.entry(name_id).or_insert(next);
        if self.domains.named.insert((process, number, None)) {
            let text = self.strings.text(name_id)?;
            self.named(start, DOMAIN, tid, number, Cell::Null, &text)?;
        }
        Ok(number)
    }

    /// An event that names something.
    fn named(&mut self, at: i64, kind: i64, tid: i64, domain: i64, category: Cell<'_>, text: &str) -> io::Result<()> {
        let number = self.strings.number(&mut self.to, text)?;
        let none = Cell::Null;
        let cells = [at.into(), none, kind.into(), none, category, none, text.into(), tid.into()];
        self.to.insert(&NVTX, &[&cells[..], &[number.into(), domain.into(), none, none]].concat())
    }

    pub(super) fn ranges(&mut self, rows: &Rows) -> io::Result<()> {
        let (process, start, end) = (rows.i64("process_id"), rows.i64("start_ns"), rows.ints("end_ns"));
        let (tid, kind, call) = (rows.i32_or("tid", 0), rows.texts("kind"), rows.ints("correlation_id"));
        let (name, domain) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("domain_id", NO_NAME));
        let (category, category_name) = (rows.ints("category"), rows.i64_or("category_id", NO_NAME));
        let (color, payload, real) = (rows.ints("color"), rows.ints("payload_int"), rows.reals("payload_float"));
        for row in 0..rows.len {
            let tid = self.places.tid(process[row], tid[row]);
            let at = start[row] - self.begin_ns;
            let domain = self.domain(at, process[row], tid, domain[row])?;
            let category = category.known(row);
            let newly = |domains: &mut Domains| domains.named.insert((process[row], domain, category));
            if let (Some(_), Some(text)) = (category, self.strings.known(category_name[row])?)
                && newly(&mut self.domains)
            {
                self.named(at, CATEGORY, tid, domain, category.into(), &text)?;
            }
            let (kind, id) = match kind.get(row) {
                "mark" => (MARK, None),
                "start_end" => (START_END, call.known(row)),
                _ => (PUSH_POP, None),
            };
            // Open at the end: null, too.
            let end = end.known(row).filter(|_| kind != MARK).map(|end| (end - self.begin_ns).max(at));
            let text = self.strings.known(name[row])?;
            let number = text.as_deref().map(|text| self.strings.number(&mut self.to, text)).transpose()?;
            // nsys has the text of a name that was not registered beside its events, where many queries look for all of them.
            let text = text.as_deref().map_or(Cell::Null, Cell::Text);
            let cells = [
                at.into(),
                end.into(),
                kind.into(),
                id.into(),
                category.into(),
                color.known(row).into(),
                text,
                tid.into(),
                number.into(),
                domain.into(),
                payload.known(row).into(),
                real.known(row).map_or(Cell::Null, Cell::Real),
            ];
            self.event(&NVTX, &cells)?;
        }
        Ok(())
    }

    /// Calls of NCCL, which names them with NVTX itself: where it was seen doing so they are there already.
    pub(super) fn collectives(&mut self, rows: &Rows) -> io::Result<()> {
        if self.domains.nccl {
            return Ok(());
        }
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (tid, api) = (rows.i32_or("tid", 0), rows.i64("api_id"));
        for row in 0..rows.len {
            let tid = self.places.tid(process[row], tid[row]);
            let (at, end) = self.span(start[row], length[row]);
            let domain = self.domain(at, process[row], tid, id(NameKind::Domain, NCCL))?;
            let text = self.strings.text(api[row])?;
            let number = self.strings.number(&mut self.to, &text)?;
            let none = Cell::Null;
            let cells = [at.into(), end.into(), PUSH_POP.into(), none, none, none, Cell::Text(&text), tid.into()];
            self.event(&NVTX, &[&cells[..], &[number.into(), domain.into(), none, none]].concat())?;
        }
        Ok(())
    }
}
