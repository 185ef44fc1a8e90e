//! Stacks as they are listed: named, filtered, no longer than there is room for; and the lines that allocate in them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Builder;
use crate::report::{Frame, Location, wording};
use crate::symbols::{FrameKind, NamedFrame, Names};

/// Bytes of names listed in all stacks; beyond them a stack shows its innermost frame only. Every stack of a usual report
/// fits many times over.
pub(super) const NAMES: usize = 16 << 20;
/// Bytes that a frame takes beside its names.
const FRAME: usize = 256;

impl Builder<'_> {
    /// Returns the user's line whose backward pass a stack was taken in.
    pub(super) fn forward_site(&mut self, stack: u32) -> Option<Location> {
        let names = self.names;
        let find = || {
            let frames = names.forward_of(stack);
            let at = names.allocated_at(&frames)?;
            Some(location(at))
        };
        self.forward.entry(stack).or_insert_with(find).clone()
    }

    /// Returns the innermost frame of a package that a stack's line called.
    pub(super) fn library_at(&self, stack: u32) -> Option<Location> {
        self.names.library_at(&self.names.frames(stack)).map(location)
    }

    /// Returns a stack and the line of it that allocates.
    pub(super) fn stack(&mut self, id: u32) -> (Option<Location>, Vec<Frame>) {
        let names = self.names;
        let left = self.room;
        let resolve = || {
            let frames = names.frames(id);
            let at = names.allocated_at(&frames);
            let location = at.map(location);
            let mut frames = listed_frames(names, id, frames);
            shorten(&mut frames, left);
            (location, frames)
        };
        let (location, frames) = self.stacks.entry(id).or_insert_with(resolve);
        let (location, mut frames) = (location.clone(), frames.clone());
        // Listed once more.
        self.room = left.saturating_sub(shorten(&mut frames, left));
        (location, frames)
    }

    /// Returns the other native stacks that a site's allocations took from Python's innermost frame to the allocator.
    pub(super) fn other_native_stacks(&mut self, id: u32) -> Vec<Vec<Frame>> {
        let mut stacks = Vec::new();
        for frames in self.names.examples(id).into_iter().skip(1) {
            let mut frames = shown(self.names, frames);
            frames.truncate(
                frames.iter().position(|f| f.frame.kind != FrameKind::Native).unwrap_or(frames.len()),
            );
            if frames.is_empty() {
                continue;
            }
            self.room = self.room.saturating_sub(shorten(&mut frames, self.room));
            stacks.push(frames);
        }
        stacks
    }
}

fn location(frame: &NamedFrame) -> Location {
    Location { file: frame.file.clone(), line: frame.line, function: frame.function.clone() }
}

/// The allocating lines of stacks, each with a number. Stacks of one line have the same.
pub(super) struct Lines<'a> {
    names: &'a Names<'a>,
    numbers: RefCell<HashMap<Location, u64>>,
    of_stacks: RefCell<HashMap<u32, u64>>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(names: &'a Names<'a>) -> Lines<'a> {
        Lines { names, numbers: RefCell::default(), of_stacks: RefCell::default() }
    }

    /// Returns the number of a stack's line.
    pub(super) fn number(&self, stack: u32) -> u64 {
        let find = || {
            let frames = self.names.frames(stack);
            // A stack without a line is one of its own.
            let Some(at) = self.names.allocated_at(&frames) else { return u64::from(stack) };
            let location = location(at);
            let mut numbers = self.numbers.borrow_mut();
            // Beyond every stack id.
            let next = (numbers.len() as u64) << 32 | u64::from(u32::MAX);
            *numbers.entry(location).or_insert(next)
        };
        *self.of_stacks.borrow_mut().entry(stack).or_insert_with(find)
    }

    /// Returns a number of the way from a stack's line inwards.
    pub(super) fn way(&self, stack: u32) -> u64 {
        let frames = self.names.frames(stack);
        let Some(at) = self.names.allocated_at(&frames) else { return u64::from(stack) };
        let mut hasher = DefaultHasher::new();
        for frame in &frames {
            (&frame.file, frame.line, &frame.function).hash(&mut hasher);
            if std::ptr::eq(frame, at) {
                break;
            }
        }
        hasher.finish()
    }

    /// Returns a number of all lines of the program that a stack goes through.
    pub(super) fn all(&self, stack: u32) -> u64 {
        let frames = self.names.frames(stack);
        let mut hasher = DefaultHasher::new();
        let own = frames.iter().filter(|frame| self.names.is_own(frame));
        own.for_each(|frame| (&frame.file, frame.line, &frame.function).hash(&mut hasher));
        hasher.finish()
    }
}

/// Returns a stack as reports list it: with native frames from an example where it is known by its Python frames alone.
/// `frames`: its own.
pub fn listed_frames(names: &Names<'_>, id: u32, frames: Vec<NamedFrame>) -> Vec<Frame> {
    shown(names, names.examples(id).into_iter().next().unwrap_or(frames))
}

/// Returns frames as they are listed.
fn shown(names: &Names<'_>, frames: Vec<NamedFrame>) -> Vec<Frame> {
    let frame = |frame: NamedFrame| Frame { own: names.is_own(&frame), frame, hidden_frames: 0 };
    let frames = frames.into_iter().map(frame).collect();
    if names.shows_all() { frames } else { wording::stack::filtered(frames) }
}

/// Cuts a stack that takes more than `room` bytes to its innermost frame; returns the bytes it takes.
fn shorten(frames: &mut Vec<Frame>, room: usize) -> usize {
    let of = |f: &Frame| {
        let module = f.frame.module.as_ref().map_or(0, String::len);
        FRAME + f.frame.file.len() + f.frame.function.len() + module
    };
    let taken: usize = frames.iter().map(of).sum();
    if taken <= room || frames.len() < 2 {
        return taken;
    }
    frames.truncate(1);
    frames.shrink_to_fit();
    frames.iter().map(of).sum()
}
