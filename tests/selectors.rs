//! Every message that the shim hooks on macOS is one of Metal's, with the signature that Metal's headers give it.
//!
//! The reference is objc2-metal, which is generated from Apple's headers. It is not built here: its source, which cargo
//! has among the packages of this workspace, is read as text, and so are the shim's lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::repository;

#[path = "../shim/src/interpose/objc/encoding.rs"]
mod encoding;

/// A line of the shim's lists.
#[derive(Debug)]
struct Line {
    role: String,
    selector: String,
    encoding: String,
    arguments: String,
    result: String,
}

/// Roles whose class answers another protocol's messages as well.
const ALSO: [(&str, &str); 2] =
    [("MTLComputeCommandEncoder", "MTL4ComputeCommandEncoder"), ("MTLDevice", "MTL4ComputeCommandEncoder")];
/// Messages that every object understands, which no protocol of Metal's declares.
const OF_ALL: [(&str, &str); 1] = [("dealloc", "v@:")];
/// What Metal's headers have of Foundation's.
const FOUNDATION: [(&str, &str); 8] = [
    ("CFTimeInterval", "d"),
    ("NSInteger", "q"),
    ("NSRange", "{_NSRange=QQ}"),
    ("NSUInteger", "Q"),
    ("bool", "B"),
    ("c_void", "v"),
    ("u64", "Q"),
    ("u8", "C"),
];
/// The hooks' own types.
const OURS: [(&str, &str); 10] = [
    ("()", "v"),
    ("Id", "@"),
    ("Range", "{_NSRange=QQ}"),
    ("Region", "{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}"),
    ("Size", "{MTLSize=QQQ}"),
    ("c_void", "v"),
    ("isize", "q"),
    ("u64", "Q"),
    ("u8", "B"),
    ("usize", "Q"),
];

#[test]
fn hooked_messages_are_metals_own_with_its_signatures() {
    let lines = lists();
    assert!(lines.len() > 40, "{} lines of lists were found", lines.len());
    let metal = Metal::read(&reference());
    let mut complaints = Vec::new();
    for line in &lines {
        let Line { role, selector, encoding, .. } = line;
        match metal.encoding(role, selector) {
            None => complaints.push(format!("{role} has no {selector}")),
            Some(theirs) if !encoding::alike(encoding.as_bytes(), theirs.as_bytes()) => {
                complaints.push(format!("[{role} {selector}] is {theirs}, and listed as {encoding}"));
            }
            Some(_) => {}
        }
        let ours = signature(line);
        // A byte is a byte to the processor.
        let bytes = |text: &str| text.replace('C', "B");
        if !encoding::alike(bytes(encoding).as_bytes(), bytes(&ours).as_bytes()) {
            complaints.push(format!("[{role} {selector}] is listed as {encoding}, and its hook is {ours}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn what_a_class_must_have_to_be_hooked_is_metals_own() {
    let metal = Metal::read(&reference());
    let mut complaints = Vec::new();
    for (role, selector) in needs() {
        if metal.encoding(&role, &selector).is_none() {
            complaints.push(format!("{role} has no {selector}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_reference_is_read_as_it_is_meant() {
    let metal = Metal::read(&reference());
    let of = |role, selector| metal.encoding(role, selector).expect("it is there");
    assert_eq!(of("MTLDevice", "newBufferWithBytes:length:options:"), "@@:^vQQ");
    assert_eq!(of("MTLDevice", "newComputePipelineStateWithFunction:error:"), "@@:@^@");
    assert_eq!(of("MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:"), "B@:QQ");
    assert_eq!(of("MTLCommandBuffer", "addCompletedHandler:"), "v@:@?");
    assert_eq!(of("MTLBlitCommandEncoder", "endEncoding"), "v@:", "of the protocol that it extends");
    assert_eq!(metal.encoding("MTLDevice", "commit"), None);
}

/// Metal's protocols.
struct Metal {
    /// The protocols that one extends, and its messages with their encodings.
    protocols: BTreeMap<String, (Vec<String>, BTreeMap<String, String>)>,
}

impl Metal {
    fn read(folder: &Path) -> Metal {
        let files = std::fs::read_dir(folder.join("src/generated")).expect("generated sources").flatten();
        let texts: Vec<String> =
            files.map(|file| plain(&std::fs::read_to_string(file.path()).expect("text"))).collect();
        let mut types: BTreeMap<String, String> = FOUNDATION.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        types.extend([("MTLSize".to_owned(), "{MTLSize=QQQ}".to_owned())]);
        types.extend([("MTLOrigin".to_owned(), "{MTLOrigin=QQQ}".to_owned())]);
        types.extend([("MTLRegion".to_owned(), "{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}".to_owned())]);
        for text in &texts {
            // Enumerations are numbers, and aliases what they stand for.
            for part in text.split("pub struct ").skip(1) {
                if let Some((name, rest)) = part.split_once("(pub ") {
                    let number = rest.split(')').next().unwrap_or_default();
                    types.entry(name.to_owned()).or_insert_with(|| number.to_owned());
                }
            }
            for part in text.split("pub type ").skip(1) {
                if let Some((name, rest)) = part.split_once(" = ") {
                    let aliased = rest.split(';').next().unwrap_or_default();
                    types.entry(name.to_owned()).or_insert_with(|| aliased.to_owned());
                }
            }
        }
        let mut protocols = BTreeMap::new();
        for part in texts.iter().flat_map(|text| text.split("pub unsafe trait ").skip(1)) {
            let (head, body) = part.split_once(" {").expect("a protocol has a body");
            let (name, supers) = head.split_once(':').unwrap_or((head, ""));
            let supers = supers.split('+').map(|name| name.trim().to_owned()).collect();
            let body = body.split("extern_").next().unwrap_or_default();
            let messages = body.split("#[unsafe(method(").skip(1).filter_map(|text| message(text, &types)).collect();
            protocols.insert(name.trim().to_owned(), (supers, messages));
        }
        assert!(protocols.len() > 50, "{} protocols were found", protocols.len());
        Metal { protocols }
    }

    /// The signature of a message to objects of this protocol, or of those that it extends.
    fn encoding(&self, role: &str, selector: &str) -> Option<String> {
        if let Some((_, encoding)) = OF_ALL.iter().find(|(of_all, _)| *of_all == selector) {
            return Some((*encoding).to_owned());
        }
        let mut open = vec![role];
        open.extend(ALSO.iter().filter(|(of, _)| *of == role).map(|(_, also)| *also));
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            let Some((supers, messages)) = self.protocols.get(name).filter(|_| seen.insert(name)) else { continue };
            if let Some(encoding) = messages.get(selector) {
                return Some(encoding.clone());
            }
            open.extend(supers.iter().map(String::as_str));
        }
        None
    }
}

/// Selector and encoding of a message; `text` begins with its selector. None: it is of types that no hook has.
fn message(text: &str, types: &BTreeMap<String, String>) -> Option<(String, String)> {
    let (selector, rest) = text.split_once("))]")?;
    let (_, rest) = rest.split_once("fn ")?;
    let (_, rest) = rest.split_once('(')?;
    let declaration = &rest[..rest.find(';')?];
    let (arguments, result) = declaration.rsplit_once(") -> ").unwrap_or((declaration.trim_end_matches(')'), "()"));
    let mut encodings = vec![if result == "()" { "v".to_owned() } else { encode(result, types)? }, "@:".to_owned()];
    for argument in split(arguments).into_iter().filter(|argument| !argument.ends_with("self")) {
        encodings.push(encode(argument.split_once(':')?.1.trim(), types)?);
    }
    // A last `_` is the error that the message gives back by its last argument.
    let selector = match selector.strip_suffix('_') {
        Some(selector) => {
            encodings.push("^@".to_owned());
            selector
        }
        None => selector,
    };
    Some((selector.to_owned(), encodings.concat()))
}

/// How the runtime encodes a type of the reference.
fn encode(of: &str, types: &BTreeMap<String, String>) -> Option<String> {
    if let Some(known) = types.get(of) {
        let is_encoding = FOUNDATION.iter().any(|(name, _)| *name == of) || known.starts_with('{');
        return if is_encoding { Some(known.clone()) } else { encode(known, types) };
    }
    let inside = |start: &str| of.strip_prefix(start)?.strip_suffix('>');
    if of.contains("DynBlock<") && !of.starts_with("Option<Retained") {
        return Some("@?".to_owned());
    }
    if let Some(inner) = inside("Result<").or(inside("Option<")) {
        return encode(split(inner).first()?, types);
    }
    if let Some(inner) = inside("NonNull<").or(of.strip_prefix("*mut ")).or(of.strip_prefix("*const ")) {
        let object = inner.starts_with("ProtocolObject") || inner.starts_with("NS") && !types.contains_key(inner);
        return if object { Some("@".to_owned()) } else { Some(format!("^{}", encode(inner, types)?)) };
    }
    if of.starts_with("&mut ") {
        return Some("^@".to_owned());
    }
    (of.starts_with('&') || of.starts_with("Retained<")).then(|| "@".to_owned())
}

/// How the runtime would encode the hook's own arguments.
fn signature(line: &Line) -> String {
    let of = |text: &str| {
        let pointer = text.strip_prefix("*const ").or(text.strip_prefix("*mut "));
        let name = pointer.unwrap_or(text);
        let known = OURS.iter().find(|(ours, _)| *ours == name).unwrap_or_else(|| panic!("{name} is not known"));
        format!("{}{}", if pointer.is_some() { "^" } else { "" }, known.1)
    };
    let arguments = split(&line.arguments).into_iter().filter_map(|argument| argument.split_once(": "));
    let arguments: String = arguments.map(|(_, of_type)| of(of_type.trim())).collect();
    format!("{}@:{arguments}", of(&line.result))
}

/// The parts between commas that stand in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if !text[..at].ends_with('-') => depth -= 1,
            b')' | b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Source without comments, each run of white space one blank.
fn plain(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.collect::<Vec<_>>().join(" ").split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// The folder of objc2-metal's source.
fn reference() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(repository());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut packages = all["packages"].as_array().expect("packages").iter();
    let metal = packages.find(|package| package["name"] == "objc2-metal").expect("objc2-metal in Cargo.lock");
    Path::new(metal["manifest_path"].as_str().expect("a path")).parent().expect("a folder").to_owned()
}

/// The source of the shim's lists: texts that go on in the next line in one piece.
fn sources() -> Vec<String> {
    let folder = repository().join("shim/src/hooks/metal");
    let files = std::fs::read_dir(folder).expect("the lists").flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()).expect("text"));
    texts.map(|text| plain(&text).replace("\\ ", "")).filter(|text| text.contains("messages! {")).collect()
}

/// The parts of a list's source that are texts, each with what stands before and after it.
fn texts(source: &str) -> Vec<(&str, &str, &str)> {
    let parts: Vec<&str> = source.split('"').collect();
    parts.windows(3).enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, part)| (part[0], part[1], part[2])).collect()
}

fn lists() -> Vec<Line> {
    let mut lines = Vec::new();
    for source in sources() {
        let texts = texts(&source);
        let mut role = String::new();
        for (at, (before, text, after)) in texts.iter().enumerate() {
            if before.ends_with(": ") && after.starts_with(", from ") {
                role = (*text).to_owned();
            }
            // A line: `Class DETAIL name "selector" "encoding" (arguments) -> result`.
            let Some((_, encoding, rest)) = texts.get(at + 1).filter(|_| *after == " ") else { continue };
            let Some((arguments, rest)) = rest.strip_prefix(" (").and_then(|rest| rest.split_once(") -> ")) else {
                continue;
            };
            let result = rest.split([' ', ';']).next().unwrap_or_default().to_owned();
            let (selector, encoding) = ((*text).to_owned(), (*encoding).to_owned());
            lines.push(Line { role: role.clone(), selector, encoding, arguments: arguments.to_owned(), result });
        }
    }
    lines
}

/// Roles with the selectors by which their classes are told.
fn needs() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for source in sources() {
        for part in source.split(": \"").skip(1) {
            let Some((role, rest)) = part.split_once("\", from ") else { continue };
            let Some((_, rest)) = rest.split_once("needs [") else { continue };
            let list = rest.split(']').next().unwrap_or_default();
            let selectors = list.split('"').skip(1).step_by(2);
            all.extend(selectors.map(|selector| (role.to_owned(), selector.to_owned())));
        }
    }
    assert!(all.len() > 10, "{all:?}");
    all
}
