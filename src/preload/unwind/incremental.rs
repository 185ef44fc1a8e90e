//! The fast unwinder. Two captures of one thread mostly differ at their inner ends only, so each is checked against the
//! previous one: once a frame is met whose address and registers are those of an old frame, every word that the old
//! unwinding read from there on is read again. If all are as they were, so is the rest of the stack, for that is made of
//! nothing else. Frames before that point, or before the first word that changed, are stepped over by their rules.
//!
//! ```text
//!              outermost                      innermost
//!  previous    a ─ b ─ c ─ d ─ e ─ f ─ g
//!  now         a ─ b ─ c ─ d ─ h ─ i          stepped i, h; met d; read again the words of d, c, b
//! ```
//!
//! Every load lies between the stack pointer and the end of this thread's stack. No lock, no allocation.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use crate::unwind::Frames;
use crate::unwind::LIMIT;
use crate::unwind::SEED;
use crate::unwind::SEED_TRUNCATED;
use crate::unwind::chain;
use crate::unwind::chained;
use crate::unwind::extent::Extent;
use crate::unwind::is_own;
use crate::unwind::modules;
use crate::unwind::rules;
use crate::unwind::rules::Kind;
use crate::unwind::rules::Rule;
use crate::unwind::tables::interrupted;

/// The deepest stack that is kept, our own frames included.
const DEPTH: usize = 512;

/// The last capture of a thread; all zero before the first.
#[repr(C)]
pub struct Previous {
    stack: Extent,
    /// The stack pointer of the capture under way; 0 if none is.
    busy: u64,
    epoch: u64,
    /// Frames of the last capture.
    len: usize,
    /// It did not reach the outermost frame.
    truncated: bool,
    /// The next capture may be checked against it.
    usable: bool,
    /// The last capture, outermost first.
    frames: [Frame; DEPTH],
    /// What was stepped over, innermost first.
    fresh: [Frame; DEPTH],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// The instruction it will go on with, and the stack and frame pointer it has then.
    pc: u64,
    sp: u64,
    rbp: u64,
    /// Where the caller's rbp was read; 0: it is the same.
    rbp_from: u64,
    /// Where the caller's stack pointer was read; 0: it was reckoned.
    sp_from: u64,
    /// Of the addresses from the outermost frame to this, without our own.
    hash: u64,
    /// How many those are.
    count: u64,
}

/// Registers of a frame.
#[derive(Clone, Copy)]
struct Registers {
    pc: u64,
    sp: u64,
    rbp: u64,
}

impl Registers {
    #[inline(always)]
    fn here() -> Registers {
        let (pc, sp, rbp);
        // SAFETY: reads registers only.
        unsafe {
            std::arch::asm!(
                "lea {pc}, [rip]",
                "mov {sp}, rsp",
                "mov {rbp}, rbp",
                pc = out(reg) pc,
                sp = out(reg) sp,
                rbp = out(reg) rbp,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers { pc, sp, rbp }
    }
}

/// How a walk outwards came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At a frame of the previous capture, so many frames from the outermost.
    Met(usize),
    /// The tables say that it is the outermost.
    Outermost,
    /// No table tells of its caller.
    Untold,
    /// It is in no module: generated code, or no code at all, where a coroutine's part of the stack ends and what lies
    /// beyond is not its caller's. The platform's unwinder would look at the instructions there, mapped or not.
    Unknown,
    /// Its return address is 0: the outermost as well.
    Zero,
    /// Its caller cannot be where it would have to be.
    Lost,
    /// At so many frames.
    Deep,
}

impl End {
    fn is_truncated(self) -> bool {
        matches!(self, End::Untold | End::Unknown | End::Lost | End::Deep)
    }

    /// True if the words that link the frames, and nothing else, lead there again.
    fn is_linked(self) -> bool {
        matches!(self, End::Met(_) | End::Outermost | End::Untold)
    }
}

/// What a frame's rule comes to.
enum Step {
    To(Registers),
    /// Into what a signal interrupted.
    Interrupted(Registers),
    End(End),
}

static ARMED: AtomicBool = AtomicBool::new(false);

pub fn arm() {
    ARMED.store(modules::has_tables(), Ordering::Release);
}

/// To be called after a `dlclose`.
pub fn modules_changed() {
    rules::forget();
}

impl Previous {
    /// Unwinds the calling thread's stack; its hash. Until [`Self::release`] the frames stay for [`Self::spell_out`].
    /// `None`: the other unwinder has to.
    ///
    /// # Safety
    /// `this` is null, or the calling thread's own.
    #[inline(always)]
    pub unsafe fn take(this: *mut Previous) -> Option<u64> {
        if this.is_null() || !ARMED.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the caller's word. A signal handler may come in between, and look at `stack` and `busy` only.
        unsafe { (*this).capture() }
    }

    #[inline(never)]
    fn capture(&mut self) -> Option<u64> {
        let here = Registers::here();
        // A capture that this thread was in the middle of: either a signal handler further down is asking, or the thread
        // has left it by a long jump.
        if !self.stack.holds(here.sp) || (self.busy != 0 && here.sp < self.busy) {
            return None;
        }
        self.busy = here.sp;
        compiler_fence(Ordering::SeqCst);
        let hash = self.unwind(here);
        if hash.is_none() {
            self.usable = false;
            // SAFETY: a reference.
            unsafe { Previous::release(self) };
        }
        hash
    }

    /// The frames may change again.
    ///
    /// # Safety
    /// `this` is the calling thread's own.
    #[inline(always)]
    pub unsafe fn release(this: *mut Previous) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller's word.
        unsafe { (*this).busy = 0 };
    }

    fn unwind(&mut self, here: Registers) -> Option<u64> {
        let epoch = rules::epoch();
        let old = if self.usable && self.epoch == epoch { self.len } else { 0 };
        self.epoch = epoch;
        // Until this capture is whole there is none.
        self.usable = false;
        let walked = self.walk(here, old)?;
        let (mut len, mut hash, mut count) = (0, SEED, 0);
        if let End::Met(kept) = walked.end {
            len = kept;
            Frame { hash, count, .. } = self.frames[kept - 1];
        } else {
            self.truncated = walked.end.is_truncated();
            if self.truncated {
                hash = SEED_TRUNCATED;
            }
        }
        if len + walked.stepped > DEPTH {
            return None;
        }
        for frame in self.fresh[..walked.stepped].iter().rev() {
            if !is_own(frame.pc) {
                hash = chain(hash, frame.pc);
                count += 1;
            }
            self.frames[len] = Frame { hash, count, ..*frame };
            len += 1;
        }
        self.len = len;
        self.usable = walked.end.is_linked() && !walked.signal;
        if count <= LIMIT as u64 && walked.end != End::Deep { Some(hash) } else { self.shortened() }
    }

    /// The hash of a stack too deep to be shown whole.
    #[cold]
    #[inline(never)]
    fn shortened(&self) -> Option<u64> {
        let shown = self.frames[..self.len].iter().map(|frame| frame.pc).filter(|pc| !is_own(*pc));
        let hidden = shown.clone().count().checked_sub(LIMIT)?;
        Some(chained(SEED_TRUNCATED, shown.skip(hidden)))
    }

    pub(crate) fn spell_out(&self, into: &mut Frames) {
        let mut shown = self.frames[..self.len].iter().rev().map(|frame| frame.pc).filter(|pc| !is_own(*pc));
        if shown.all(|pc| into.push(pc)) && self.truncated {
            into.truncate();
        }
    }

    /// Steps outwards, noting what it steps over, until a frame of the previous capture is met from which on nothing
    /// changed.
    #[inline(always)]
    fn walk(&mut self, mut at: Registers, mut old: usize) -> Option<Walked> {
        let stack = at.sp..self.stack.end();
        let mut walked = Walked { stepped: 0, end: End::Deep, signal: false };
        // The address of a call lies before the one it returns to; the innermost instruction is where it is.
        let mut exact = true;
        loop {
            // Old frames further in are gone.
            while old > 0 && self.frames[old - 1].sp < at.sp {
                old -= 1;
            }
            if old > 0 && self.frames[old - 1].is_at(&at) {
                let changed = self.first_changed(old);
                if changed == 0 {
                    walked.end = End::Met(old);
                    return Some(walked);
                }
                // Up to the frame at `changed` all is as it was; its caller is another.
                if changed < old - 1 {
                    for frame in (changed + 1..old).rev() {
                        *self.fresh.get_mut(walked.stepped)? = self.frames[frame];
                        walked.stepped += 1;
                    }
                    let Frame { pc, sp, rbp, .. } = self.frames[changed];
                    (at, exact) = (Registers { pc, sp, rbp }, false);
                }
                old = changed;
            }
            let Some(frame) = self.fresh.get_mut(walked.stepped) else { return Some(walked) };
            let rule = rules::of(at.pc.wrapping_sub(u64::from(!exact)));
            *frame = Frame { pc: at.pc, sp: at.sp, rbp: at.rbp, rbp_from: 0, sp_from: 0, hash: 0, count: 0 };
            walked.stepped += 1;
            let Some(rule) = rule else {
                walked.end = End::Unknown;
                return Some(walked);
            };
            match step(rule, at, &stack, frame)? {
                Step::To(caller) => (at, exact) = (caller, false),
                // Such a frame's words stand elsewhere than a call's: none of this can be checked again.
                Step::Interrupted(caller) => {
                    (at, exact, walked.signal) = (caller, true, true);
                    old = 0;
                }
                Step::End(end) => {
                    walked.end = end;
                    return Some(walked);
                }
            }
        }
    }

    /// Reads again the words that led from frame `old - 1` of the previous capture to the outermost. The innermost frame
    /// that does not lead where it led; 0 if all do.
    #[inline(always)]
    fn first_changed(&self, old: usize) -> usize {
        let mut inner = old - 1;
        while inner > 0 {
            let (frame, caller) = (&self.frames[inner], &self.frames[inner - 1]);
            // SAFETY: these words lay on this thread's stack when they were read. It has not moved, and does not shrink.
            let same = unsafe {
                read(caller.sp - 8) == caller.pc
                    && (frame.rbp_from == 0 || read(frame.rbp_from) == caller.rbp)
                    && (frame.sp_from == 0 || read(frame.sp_from) == caller.sp)
            };
            if !same {
                return inner;
            }
            inner -= 1;
        }
        0
    }
}

/// What a walk noted.
struct Walked {
    /// Frames in `fresh`.
    stepped: usize,
    end: End,
    /// A signal interrupted one of them.
    signal: bool,
}

impl Frame {
    #[inline(always)]
    fn is_at(&self, at: &Registers) -> bool {
        self.sp == at.sp && self.pc == at.pc && self.rbp == at.rbp
    }
}

/// From a frame to its caller, by its rule. Notes where the caller's registers were read. `None`: the rule cannot tell.
#[inline(always)]
fn step(rule: Rule, at: Registers, stack: &Range<u64>, frame: &mut Frame) -> Option<Step> {
    let word = |address| word(address, stack);
    const LOST: Option<Step> = Some(Step::End(End::Lost));
    let (cfa, rbp_from) = match rule.kind() {
        Kind::Special => return special(rule, at, stack),
        Kind::Saved => {
            frame.sp_from = at.rbp.wrapping_add(rule.cfa());
            let Some(cfa) = word(frame.sp_from) else { return LOST };
            (cfa, at.rbp.wrapping_add(rule.rbp()))
        }
        kind => {
            let base = if kind == Kind::Rsp { at.sp } else { at.rbp };
            let cfa = base.wrapping_add(rule.cfa());
            (cfa, if rule.rbp() == 0 { 0 } else { cfa.wrapping_add(rule.rbp()) })
        }
    };
    // A caller's frame lies further out.
    if cfa <= at.sp || cfa > stack.end || cfa % 8 != 0 {
        return LOST;
    }
    let mut caller = Registers { pc: 0, sp: cfa, rbp: at.rbp };
    if rbp_from != 0 {
        frame.rbp_from = rbp_from;
        let Some(rbp) = word(rbp_from) else { return LOST };
        caller.rbp = rbp;
    }
    let Some(pc) = word(cfa - 8) else { return LOST };
    caller.pc = pc;
    Some(if pc == 0 { Step::End(End::Zero) } else { Step::To(caller) })
}

#[cold]
fn special(rule: Rule, at: Registers, stack: &Range<u64>) -> Option<Step> {
    match rule {
        Rule::END => Some(Step::End(End::Outermost)),
        Rule::UNTOLD => Some(Step::End(End::Untold)),
        Rule::SIGNAL => {
            let register = |offset| word(at.sp.wrapping_add(offset), stack);
            let (pc, sp) = (register(interrupted::PC)?, register(interrupted::RSP)?);
            let rbp = register(interrupted::RBP)?;
            // On this very stack; not out of a coroutine's.
            (at.sp < sp && sp < stack.end).then_some(Step::Interrupted(Registers { pc, sp, rbp }))
        }
        _ => None,
    }
}

/// A word of the stack, which reaches from where the capture began to the thread's outermost. A frame's may lie below its
/// own stack pointer, where a function that is about to return has left it.
#[inline(always)]
fn word(address: u64, stack: &Range<u64>) -> Option<u64> {
    if address < stack.start || address > stack.end - 8 {
        return None;
    }
    // SAFETY: between the calling thread's stack pointer and the end of its stack.
    Some(unsafe { read(address) })
}

/// # Safety
/// Eight bytes of the calling thread's stack.
#[inline(always)]
unsafe fn read(address: u64) -> u64 {
    // SAFETY: the caller's word. Volatile, for what is read belongs to frames that the compiler thinks nobody looks into.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}
