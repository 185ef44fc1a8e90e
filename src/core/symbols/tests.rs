use super::*;
use crate::format::entry::{LineTable, TableEntry};

fn tables(frames: &[Frame], python: u32) -> Tables {
    let mut tables = Tables::default();
    // 3.10 pairs: one line for everything.
    for (id, file, name) in [(1, "train.py", "inner"), (2, "train.py", "outer"), (3, "train.py", "<module>")]
    {
        let lines = [254, 0];
        tables.add(TableEntry::Code {
            id,
            file,
            name,
            first_line: 10 * id as i32,
            encoding: LineTable::Pairs,
            lines: &lines,
        });
    }
    for (id, path) in [(1, "/lib/libpython3.11.so"), (2, "/lib/libtorch.so")] {
        tables.add(TableEntry::Module { id, start: 0, end: 1 << 20, bias: 0, build_id: &[1], path });
    }
    let packed: Vec<u8> = frames.iter().flat_map(|f| f.pack().to_le_bytes()).collect();
    tables.add(TableEntry::Stack { id: 7, python, frames: &packed });
    tables
}

struct Fake;

impl Symboliser for Fake {
    fn functions(&mut self, module: &Module, addresses: &[u64]) -> Vec<Vec<Function>> {
        let name = |a: u64| match (module.path.as_str(), a) {
            ("/lib/libpython3.11.so", 0xff) => "_PyEval_EvalFrameDefault".to_owned(),
            (_, a) => format!("f{a:x}"),
        };
        addresses.iter().map(|&a| vec![Function { name: name(a), file: None, line: None }]).collect()
    }
}

const fn py(code: u32, entry: bool) -> Frame {
    Frame::Python { code, offset: 0, entry }
}

const fn at(module: u32, offset: u32) -> Frame {
    Frame::Native { module, offset }
}

fn shown(tables: &Tables, symboliser: bool) -> Vec<String> {
    let fake: Option<Box<dyn Symboliser>> = if symboliser { Some(Box::new(Fake)) } else { None };
    Names::new(tables, fake).frames(7).into_iter().map(|f| f.function).collect()
}

#[test]
fn interpreter_frames_stand_for_python_frames_up_to_one_entered_from_c() {
    let frames = [
        py(1, false),
        py(2, true),
        py(3, true),
        at(2, 0x11),
        at(1, 0x100),
        at(2, 0x21),
        at(1, 0x100),
        at(1, 0x31),
    ];
    let tables = tables(&frames, 3);
    assert_eq!(shown(&tables, true), ["f10", "inner", "outer", "f20", "<module>", "f30"]);
    // Without symbols the two lists stand one after the other.
    let plain = shown(&tables, false);
    assert_eq!(plain[..3], ["inner", "outer", "<module>"]);
    assert_eq!(plain[3], "libtorch.so+0x11");
}

#[test]
fn lists_that_do_not_fit_are_not_forced_together() {
    let frames = [py(1, true), py(2, true), at(2, 0x11), at(1, 0x100), at(1, 0x31)];
    assert_eq!(
        shown(&tables(&frames, 2), true),
        ["inner", "outer", "f10", "_PyEval_EvalFrameDefault", "f30"]
    );
    // Too few Python frames.
    let frames = [py(1, true), at(1, 0x100), at(1, 0x100)];
    assert_eq!(shown(&tables(&frames, 1), true)[0], "inner");
    // A native stack that was cut off explains what is left over.
    let frames = [py(1, true), py(2, true), at(2, 0x11), at(1, 0x100), Frame::Truncated];
    let cut = shown(&tables(&frames, 2), true);
    assert_eq!(cut[..2], ["f10", "inner"]);
    assert_eq!(cut[3], "outer");
}

#[test]
fn unknown_numbers_are_said_not_guessed() {
    let frames = [py(99, true), at(99, 0x11), Frame::Address(0x1234)];
    assert_eq!(shown(&tables(&frames, 1), true), ["<code 99>", "<unknown module>+0x11", "0x1234"]);
    assert!(Names::new(&tables(&frames, 1), None).frames(8).is_empty());
}
