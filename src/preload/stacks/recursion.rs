//! Recursion, folded: frames that repeat the functions of the frames inside of them are left out, so that a call
//! path is one stack however deep it recursed. Pure.

use leaktrace_core::format::entry::Frame;

/// The most functions in a cycle that is recognised. A module that calls itself by PyTorch's hooks has three.
const LONGEST: usize = 16;

/// Adds the next frame outwards. If the outermost functions are now a repetition of those before them, they are
/// dropped: of each cycle the innermost round stays, with the lines that it was at.
pub fn push(frames: &mut Vec<Frame>, frame: Frame) {
    frames.push(frame);
    let code = |frame: &Frame| match *frame {
        Frame::Python { code, .. } => Some(code),
        _ => None,
    };
    let len = frames.len();
    let repeats = |&period: &usize| {
        let (before, last) = frames[len - 2 * period..].split_at(period);
        before.iter().zip(last).all(|(a, b)| code(a).is_some() && code(a) == code(b))
    };
    if let Some(period) = (1..=LONGEST.min(len / 2)).find(repeats) {
        frames.truncate(len - period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folds functions named by letters, innermost first.
    fn folded(functions: &str) -> String {
        let mut frames = Vec::new();
        for (line, function) in functions.bytes().enumerate() {
            push(&mut frames, Frame::Python { code: function.into(), offset: 2 * line as u32, entry: false });
        }
        let name = |frame: &Frame| match frame {
            Frame::Python { code, .. } => *code as u8 as char,
            _ => '?',
        };
        frames.iter().map(name).collect()
    }

    #[test]
    fn a_path_is_one_stack_however_deep_it_recursed() {
        assert_eq!(folded("fm"), "fm");
        assert_eq!(folded("fffffm"), "fm");
        assert_eq!(folded("lbhfbhfbhfm"), "lbhfm");
        assert_eq!((folded("fgfgm"), folded("fgfgfgm")), ("fgm".into(), "fgm".into()));
        assert_eq!(folded("fgfgfm"), folded("fgfm"));
    }

    #[test]
    fn functions_that_merely_come_twice_stay() {
        for path in ["awbwm", "lhfhgm", "m", ""] {
            assert_eq!(folded(path), path);
        }
    }

    #[test]
    fn the_innermost_round_stays() {
        let mut frames = Vec::new();
        for offset in [8, 20, 20] {
            push(&mut frames, Frame::Python { code: 1, offset, entry: false });
        }
        assert_eq!(frames, [Frame::Python { code: 1, offset: 8, entry: false }]);
    }
}
