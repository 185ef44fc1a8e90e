//! A stack as people read it: Python, the C++ operator, the allocator, in one column.

use super::Frame;
use super::explain::count;
use crate::symbol::{self, FrameKind, NamedFrame};

/// A stack without the frames that only lead from one to the next; each frame says how many were left out behind it.
pub fn folded(frames: Vec<Frame>) -> Vec<Frame> {
    let named: Vec<NamedFrame> = frames.iter().map(|f| f.frame.clone()).collect();
    let folded = symbol::folded(&named);
    let mut shown: Vec<Frame> = Vec::with_capacity(frames.len());
    for (frame, folded) in frames.into_iter().zip(folded) {
        match shown.last_mut() {
            Some(inner) if folded => inner.folded += 1,
            _ => shown.push(frame),
        }
    }
    shown
}

/// A line of the column: a frame, and how many more like it without a name stand for the same.
#[derive(Clone, Copy)]
pub struct Line<'f> {
    pub frame: &'f Frame,
    pub nameless: usize,
    /// It stands for its object file: where in there says nothing to anybody.
    pub is_module: bool,
}

impl Line<'_> {
    /// What is there: the function for people, and what else the line stands for.
    pub fn text(&self) -> String {
        let f = &self.frame.frame;
        let module = f.module.as_deref().filter(|_| self.is_module);
        if let Some(module) = module {
            let base = module.rsplit('/').next().unwrap_or(module);
            return format!("{base} ({} without a name)", count((self.nameless + 1) as f64, "frame"));
        }
        let name = if f.kind == FrameKind::Native { symbol::plain(&f.function) } else { f.function.clone() };
        match self.nameless {
            0 => name,
            n => format!("{name} and {} without a name", count(n as f64, "more frame")),
        }
    }
}

/// What to show of a stack: the frames of the user's own code and what it called in C++, if that has names; of a stack
/// without any of the user's, all. In the user's, nameless neighbours of one object file are one line; the innermost are
/// the allocator's, and that is all there is to say of them.
pub fn lines(frames: &[Frame], all: bool) -> Vec<Line<'_>> {
    let own = frames.iter().any(|f| f.own);
    let is_native = |f: &Frame| f.frame.kind == FrameKind::Native;
    let named = frames.iter().any(|f| is_native(f) && f.frame.has_symbol());
    // What the user's innermost function called; further out, native frames lead from Python to Python.
    let inner = frames.iter().position(|f| f.own).unwrap_or(frames.len());
    let told = |i: usize, f: &Frame| {
        all || !own || f.own || f.frame.kind == FrameKind::Autograd || (is_native(f) && named && i < inner)
    };
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (i, frame) in frames.iter().enumerate().filter(|&(i, f)| told(i, f)) {
        let alike = |line: &Line<'_>| {
            let (inner, outer) = (&line.frame.frame, &frame.frame);
            !inner.has_symbol()
                && !outer.has_symbol()
                && inner.module.is_some()
                && inner.module == outer.module
        };
        match lines.last_mut() {
            Some(line) if own && !all && alike(line) => line.nameless += 1,
            _ => {
                let is_module = i == 0
                    && own
                    && !all
                    && is_native(frame)
                    && !frame.frame.has_symbol()
                    && frame.frame.module.is_some();
                lines.push(Line { frame, nameless: 0, is_module });
            }
        }
    }
    lines
}

/// The named functions of native frames, innermost first.
pub fn names(frames: &[Frame]) -> Vec<String> {
    let named = frames.iter().filter(|f| f.frame.has_symbol());
    named.map(|f| symbol::plain(&f.frame.function)).collect()
}
