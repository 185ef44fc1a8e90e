//! A stack as people read it: Python, the C++ operator, the allocator, in one column.

use crate::report::Frame;
use crate::symbols::{self, FrameKind};

/// Hides the frames that only lead from one to the next; each frame left says how many are hidden behind it.
pub fn filtered(frames: Vec<Frame>) -> Vec<Frame> {
    let named: Vec<_> = frames.iter().map(|f| f.frame.clone()).collect();
    let mut shown: Vec<Frame> = Vec::with_capacity(frames.len());
    for (frame, hidden) in frames.into_iter().zip(symbols::hidden(&named)) {
        match shown.last_mut() {
            Some(inner) if hidden => inner.hidden_frames += 1,
            _ => shown.push(frame),
        }
    }
    shown
}

/// Returns the frames to show of a stack: the user's own, the operator that they called, and the backward pass between
/// them; of a stack without any of the user's, all.
pub fn essential(frames: &[Frame]) -> Vec<&Frame> {
    if !frames.iter().any(|f| f.own) {
        return frames.iter().collect();
    }
    let python = frames.iter().position(Frame::is_python).unwrap_or(0);
    let operator =
        frames[..python].iter().rposition(|f| f.frame.kind == FrameKind::Native && f.frame.has_symbol());
    let frames = frames.iter().enumerate();
    let essential =
        frames.filter(|&(i, f)| f.own || f.frame.kind == FrameKind::Autograd || Some(i) == operator);
    essential.map(|(_, f)| f).collect()
}

/// Names other native call paths to the allocator by their functions, innermost first; equal ones are listed once.
pub fn call_paths(native_stacks: &[Vec<Frame>]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for frames in native_stacks {
        let named = frames.iter().filter(|f| f.frame.has_symbol());
        let path = named.map(|f| symbols::plain(&f.frame.function)).collect::<Vec<_>>().join(", for ");
        if !path.is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::NamedFrame;

    #[test]
    fn equal_call_paths_are_listed_once() {
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
        let path = |line| vec![frame("empty_cuda", Some(line)), frame("sum", None)];
        let nameless = vec![frame("a.so+0x12", None)];
        assert_eq!(call_paths(&[path(1), nameless, path(2)]), ["empty_cuda, for sum"]);
    }
}
