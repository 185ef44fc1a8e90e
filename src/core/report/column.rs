//! A stack as people read it: Python, the C++ operator, the allocator, in one column.

use super::Frame;
use crate::symbols::{self, FrameKind, NamedFrame};

/// A stack without the frames that only lead from one to the next; each frame says how many were left out behind it.
pub fn folded(frames: Vec<Frame>) -> Vec<Frame> {
    let named: Vec<NamedFrame> = frames.iter().map(|f| f.frame.clone()).collect();
    let folded = symbols::folded(&named);
    let mut shown: Vec<Frame> = Vec::with_capacity(frames.len());
    for (frame, folded) in frames.into_iter().zip(folded) {
        match shown.last_mut() {
            Some(inner) if folded => inner.hidden_frames += 1,
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
}

/// What to show of a stack: the frames of the user's own code and what it called in C++, if that has names; of a stack
/// without any of the user's, all. In the user's, nameless neighbours of one object file are one line.
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
    for (_, frame) in frames.iter().enumerate().filter(|&(i, f)| told(i, f)) {
        let alike = |line: &Line<'_>| {
            let (inner, outer) = (&line.frame.frame, &frame.frame);
            !inner.has_symbol()
                && !outer.has_symbol()
                && inner.module.is_some()
                && inner.module == outer.module
        };
        match lines.last_mut() {
            Some(line) if own && !all && alike(line) => line.nameless += 1,
            _ => lines.push(Line { frame, nameless: 0 }),
        }
    }
    lines
}

/// Other native ways to the allocator, each by its named functions, innermost first; what reads the same is told once.
pub fn ways(other_native_stacks: &[Vec<Frame>]) -> Vec<String> {
    let mut ways: Vec<String> = Vec::new();
    for frames in other_native_stacks {
        let named = frames.iter().filter(|f| f.frame.has_symbol());
        let way = named.map(|f| symbols::plain(&f.frame.function)).collect::<Vec<_>>().join(", for ");
        if !way.is_empty() && !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_read_the_same_are_told_once() {
        let frame = |function: &str, line| Frame {
            frame: NamedFrame {
                kind: FrameKind::Native,
                file: "/lib/a.so".into(),
                line,
                function: function.into(),
                module: Some("/lib/a.so".into()),
            },
            own: false,
            hidden_frames: 0,
        };
        // Two lines of one function, and frames that have no names.
        let way = |line| vec![frame("empty_cuda", Some(line)), frame("sum", None)];
        let nameless = vec![frame("a.so+0x12", None)];
        assert_eq!(ways(&[way(1), nameless, way(2)]), ["empty_cuda, for sum"]);
    }
}
