//! The result as JUnit XML, which CI systems show: a test case for each limit, `failure` where it is exceeded, `error` where
//! nothing was measured, `skipped` where only one of two traces has the metric.

use anyhow::Result;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::{BASE, Judged, Outcome};

/// The document.
pub(crate) fn xml(judged: &[Judged], trace: &str) -> Result<String> {
    let count = |wanted: fn(&Outcome) -> bool| judged.iter().filter(|one| wanted(&one.outcome)).count().to_string();
    let (tests, failures) = (judged.len().to_string(), count(|o| matches!(o, Outcome::Exceeded(_))));
    let errors = count(|o| matches!(o, Outcome::NotMeasured(_)));
    let skipped = count(|o| matches!(o, Outcome::NotCompared(_)));
    let totals = [
        ("tests", tests.as_str()),
        ("failures", failures.as_str()),
        ("errors", errors.as_str()),
        ("skipped", skipped.as_str()),
    ];
    let trace = clean(trace);
    let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites = out.create_element("testsuites").with_attributes([("name", "gputrace check")]).with_attributes(totals);
    suites.write_inner_content(|out| {
        let suite = out.create_element("testsuite").with_attributes([("name", trace.as_str())]).with_attributes(totals);
        suite.write_inner_content(|out| judged.iter().try_for_each(|one| case(out, one))).map(drop)
    })?;
    Ok(String::from_utf8(out.into_inner())? + "\n")
}

fn case(out: &mut Writer<Vec<u8>>, judged: &Judged) -> std::io::Result<()> {
    let class = judged.name.split('.').next().unwrap_or_default();
    // CI systems know a case again by its name: nothing that was measured stands in it.
    let limit = if judged.of_base { BASE } else { &judged.limit };
    let name = clean(&format!("{} {limit}", judged.name));
    let case = out.create_element("testcase").with_attributes([("classname", class), ("name", name.as_str())]);
    let (kind, said) = match &judged.outcome {
        Outcome::Holds => return case.write_empty().map(drop),
        Outcome::Exceeded(said) => ("failure", clean(said)),
        Outcome::NotMeasured(why) => ("error", clean(why)),
        Outcome::NotCompared(why) => ("skipped", clean(why)),
    };
    let done = case.write_inner_content(|out| {
        let inner = out.create_element(kind).with_attribute(("message", said.as_str()));
        inner.write_text_content(BytesText::new(&format!("{}: {said}", judged.name))).map(drop)
    });
    done.map(drop)
}

/// XML has no way to write most control characters.
fn clean(text: &str) -> String {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r') || !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use quick_xml::Reader;

    use super::*;

    #[test]
    fn every_limit_is_a_case_and_no_text_breaks_the_document() {
        let evil = "a<b> & \"c\" 'd' ]]> \u{1b}[31m\u{0}\u{fffe} é";
        let judged = |name: &str, outcome| Judged { name: name.into(), limit: evil.into(), of_base: false, outcome };
        let all = [
            judged("summary.waits", Outcome::Holds),
            judged("summary.launches", Outcome::Exceeded(evil.into())),
            judged("syncs.waits", Outcome::NotMeasured(evil.into())),
            judged("kernels.med_ns", Outcome::NotCompared(evil.into())),
        ];
        let text = xml(&all, evil).unwrap();
        let mut reader = Reader::from_str(&text);
        let (mut names, mut messages) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => break,
                Event::Start(tag) | Event::Empty(tag) => {
                    names.push(String::from_utf8(tag.name().as_ref().to_vec()).unwrap());
                    let message = tag.attributes().map(Result::unwrap).find(|a| a.key.as_ref() == b"message");
                    messages.extend(message.map(|message| message.unescape_value().unwrap().into_owned()));
                }
                _ => {}
            }
        }
        let cases = ["testcase", "testcase", "failure", "testcase", "error", "testcase", "skipped"];
        assert_eq!(names, [&["testsuites", "testsuite"], &cases[..]].concat());
        assert!(messages.len() == 3 && messages.iter().all(|m| *m == clean(evil)), "{messages:?}");
        assert!(text.contains("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""), "{text}");
        let base = Judged { limit: "12.3 ms before, + 5 % allowed".into(), of_base: true, ..all[1].clone() };
        let text_of_base = xml(&[base], "trace").unwrap();
        assert!(text_of_base.contains("name=\"summary.launches as before\"") && !text_of_base.contains("12.3"));
        assert!(!text.contains('\u{1b}') && !text.contains('\u{0}') && text.ends_with("</testsuites>\n"));
    }
}
