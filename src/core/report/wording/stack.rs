//! A stack as people read it: Python, the C++ operator, the allocator, in one column.

use crate::frameworks;
use crate::report::{Frame, Site};
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

/// Returns the innermost frame that the user's line called through: the node whose backward pass allocated, or the operation
/// of a compiled function, else the Python function of a package, but for frameworks whose ways to an allocation are many.
pub fn through(frames: &[Frame]) -> Option<String> {
    let own = frames.iter().position(|f| f.own)?;
    let below = &frames[..own];
    let is_node = |f: &&Frame| matches!(f.frame.kind, FrameKind::Autograd | FrameKind::Operation);
    let node = below.iter().find(is_node);
    let called =
        node.or_else(|| below.iter().find(|f| f.is_python() && !frameworks::is_folded(&f.frame.file)))?;
    Some(called.frame.function.clone()).filter(|name| !name.is_empty())
}

/// Returns the frames of the user's own code behind the line that allocates; where there are none, all frames behind it.
pub fn callers(site: &Site) -> Vec<&Frame> {
    if site.stack.iter().any(|f| f.own) {
        return site.stack.iter().filter(|f| f.own).skip(1).collect();
    }
    let is_line = |f: &Frame| site.allocated_at.as_ref().is_some_and(|at| *at == f.location());
    let behind = site.stack.iter().position(is_line).map_or(0, |at| at + 1);
    site.stack[behind..].iter().collect()
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
