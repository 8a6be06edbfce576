//! A page holds the report's data and nothing that a browser could take for more than data.

use std::io::Read;

use serde_json::{Value, json};

use super::*;
use crate::analysis::{ALL, Facts, Need, loss, steps_one_by_one};
use crate::export::page::gather;
use crate::export::stacks::flames;
use crate::trace::testing::{START, TestTrace};
use crate::trace::{Filter, Trace};

const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u{2028}@@about@@";

/// The page of a trace.
fn page(made: &TestTrace) -> String {
    let (trace, filter) = (made.open(), Filter::default());
    let needs: Vec<Need> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let sections = ALL.iter().filter(|a| a.answers(&facts)).map(|a| (*a, a.section(&facts))).collect();
    let beside = beside(&trace, &filter, &facts);
    let report =
        Report { traces: vec![EVIL.to_owned()], notes: vec![EVIL.to_owned()], sections, problems: trace.problems() };
    render(&report, &beside)
}

fn beside(trace: &Trace, filter: &Filter, facts: &Facts<'_>) -> Beside {
    let (steps, incomplete) = (steps_one_by_one(facts, STEPS), loss::incomplete(trace));
    Beside { timeline: gather(trace, filter), flames: flames(facts), steps, incomplete }
}

/// The text of a data block.
fn block<'p>(page: &'p str, id: &str) -> &'p str {
    let from = page.split_once(&format!("id=\"{id}\">")).expect("the block").1;
    from.split_once("</script>").expect("its end").0
}

/// A packed block, by a decoder of base64 that is none of ours.
fn unpacked(page: &str, id: &str) -> Value {
    let digits = |c: u8| "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".find(c as char);
    let text = block(page, id).trim_end_matches('=').as_bytes();
    let mut bytes = Vec::new();
    for chunk in text.chunks(4) {
        let bits = chunk.iter().fold(0u32, |bits, c| bits << 6 | digits(*c).expect("a digit") as u32);
        let bits = bits << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    let mut json = Vec::new();
    flate2::read::ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut json).expect("zlib's");
    serde_json::from_slice(&json).expect("JSON")
}

#[test]
fn names_with_markup_stay_text() {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000_000);
    let mut thread = made.thread(1, 11);
    for _ in 0..20 {
        thread.launch(EVIL, 5_000);
        thread.sync("cuStreamSynchronize", "stream", 500_000);
    }
    let page = page(&made);
    assert!(!page.contains("alert(1)</script>") && !page.contains("<img") && !page.contains('\u{2028}'));
    // The page's own: three data blocks that are packed, one that is not, one program.
    assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (5, 5));
    let about: Value = serde_json::from_str(block(&page, "data-about")).expect("JSON");
    assert_eq!((&about["traces"][0], &about["notes"][0]), (&json!(EVIL), &json!(EVIL)));
    let tables = unpacked(&page, "data-tables").to_string();
    assert!(tables.contains("onerror=alert(2)"), "the name is there in full");
}

#[test]
fn the_page_has_the_reports_numbers_and_a_policy_that_forbids_requests() {
    let page = page(&TestTrace::rich());
    let about: Value = serde_json::from_str(block(&page, "data-about")).expect("JSON");
    assert!(about["figures"].as_array().is_some_and(|all| all.len() > 8), "{about}");
    assert!(
        about["verdict"].is_string() && about["findings"]["rows"].is_array() && about["shown"].as_u64() > Some(500)
    );
    let tables = unpacked(&page, "data-tables");
    let steps = tables["steps"][0][1].as_array().expect("a line");
    assert_eq!(steps.len(), 60, "each step");
    let sections = &tables["sections"];
    let names: Vec<&str> = sections.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"summary") && names.contains(&"launch-overhead") && names.len() > 20, "{names:?}");
    let flames = unpacked(&page, "data-flames");
    let titles: Vec<&str> =
        flames["graphs"].as_array().unwrap().iter().map(|of| of["title"].as_str().unwrap()).collect();
    assert!(titles.contains(&"Waits for the GPU") && titles.contains(&"Host memory in use at the peak"), "{titles:?}");
    assert!(
        page.contains("default-src 'none'; script-src 'nonce-")
            && !page.contains("@@style")
            && !page.contains("unsafe")
    );
    for word in
        ["http://", "https://", "fetch(", "XMLHttpRequest", "WebSocket", "innerHTML", "insertAdjacentHTML", "eval("]
    {
        let at: Vec<&str> =
            page.lines().filter(|line| line.contains(word) && !line.contains("www.w3.org/2000/svg")).collect();
        assert!(at.is_empty(), "{word}: {at:?}");
    }
}

#[test]
fn a_page_of_a_trace_that_is_still_written_says_so() {
    let mut made = TestTrace::rich();
    made.manifest.as_mut().unwrap().complete = false;
    let page = page(&made);
    let about: Value = serde_json::from_str(block(&page, "data-about")).expect("JSON");
    assert!(about["notes"].to_string().contains("or is still at work: here is what it had written"), "{about}");
}

#[test]
fn two_pages_of_a_trace_are_the_same_and_of_two_traces_have_other_marks() {
    let (rich, empty) = (TestTrace::rich(), TestTrace::new());
    assert_eq!(page(&rich), page(&rich));
    let mark = |page: &str| page.split_once("'nonce-").unwrap().1[..32].to_owned();
    assert_ne!(mark(&page(&rich)), mark(&page(&empty)));
}

#[test]
fn every_program_of_the_page_begins_by_saying_what_it_is_for() {
    for (name, text) in SCRIPTS {
        assert!(text.starts_with("/* ") && text.lines().count() < 450, "{name}");
        assert!(!text.contains("</script") && !text.contains("<!--"), "{name}");
    }
}

#[test]
fn base64_is_as_everybody_writes_it() {
    let known =
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{ff}\u{fe}", "w7/Dvg==")];
    known.iter().for_each(|(text, digits)| assert_eq!(base64(text.as_bytes()), *digits));
}
