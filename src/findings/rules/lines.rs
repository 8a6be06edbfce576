//! Words and lines that rules give as evidence.

use crate::analysis::{AtSite, What, costs_by_site};
use crate::findings::Subject;

pub(super) fn ms(ns: f64) -> String {
    crate::render::time(ns)
}

/// `955 a step`, `1.0 a step`, `12,000 in the run`.
pub(super) fn count(subject: &Subject<'_>, number: f64) -> String {
    let shown = crate::render::number(number);
    if subject.per_step { format!("{shown} a step") } else { format!("{shown} in the run") }
}

/// `from train.py:44 x = torch.empty(n)`: the line where most of such a cost came from, when that is known.
pub(super) fn worst_line(s: &Subject<'_>, what: What) -> Option<String> {
    Some(format!("from {}", worst_site(s, what)?.site?.short()))
}

/// Where most of such a cost of the unit came from.
pub(crate) fn worst_site(s: &Subject<'_>, what: What) -> Option<AtSite> {
    worst_of(s, what, |_| true)
}

/// The same among the calls that a finding is about.
pub(super) fn worst_of(s: &Subject<'_>, what: What, about: impl Fn(&AtSite) -> bool) -> Option<AtSite> {
    let sites = costs_by_site(s.facts, &[what]).into_iter();
    let own = sites.filter(|at| at.process_id == s.process_id && per_unit(s, at).0 > 0.0 && about(at));
    own.max_by(|a, b| per_unit(s, a).1.total_cmp(&per_unit(s, b).1))
}

/// The same of all of the run.
pub(super) fn worst_line_of_run(s: &Subject<'_>, what: What) -> Option<String> {
    let sites = costs_by_site(s.facts, &[what]);
    let worst = sites.iter().find(|at| at.process_id == s.process_id)?;
    Some(format!("from {}", worst.site.as_ref()?.short()))
}

/// Calls of the unit, and their time.
pub(super) fn per_unit(s: &Subject<'_>, at: &AtSite) -> (f64, f64) {
    (s.per_unit(at.all.count as f64, at.middle.0 as f64), s.per_unit(at.all.sum as f64, at.middle.1 as f64))
}
