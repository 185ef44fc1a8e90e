//! The fast unwinder. Two walks of one thread mostly differ at their inner ends only, so each is checked
//! against the last one: once it reaches a frame whose address and registers are those of an old frame, every
//! word that the old walk read from there on is read again. If all of them are unchanged, so is the rest of
//! the stack, because the old walk depended on nothing else. Frames before that point, or before the first
//! word that changed, are unwound by their rules.
//!
//! ```text
//!           outermost                      innermost
//!  last     a ─ b ─ c ─ d ─ e ─ f ─ g
//!  now      a ─ b ─ c ─ d ─ h ─ i          unwinds i, h; reaches d; reads again the words of d, c, b
//! ```
//!
//! Every load lies between the stack pointer and the end of this thread's stack. No lock, no allocation.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use crate::hash::chain;
use crate::loader::address;
use crate::unwind::extent::Extent;
use crate::unwind::rules::{self, Kind, Rule};
use crate::unwind::tables::interrupted;
use crate::unwind::{Frames, LIMIT, SEED, SEED_TRUNCATED, chained, is_own};

/// The most frames of a walk that is kept, our own included.
const DEPTH: usize = 512;

/// The last walk of a thread; all zero before the first.
#[repr(C)]
pub struct LastWalk {
    stack: Extent,
    /// The stack pointer of the walk under way; 0 if none is.
    busy: u64,
    epoch: u64,
    /// How many of `frames` are in use.
    len: usize,
    /// The walk did not reach the outermost frame.
    truncated: bool,
    /// The next walk may be checked against this one.
    usable: bool,
    /// Outermost first.
    frames: [Frame; DEPTH],
    /// The frames that the walk under way has unwound by rules, innermost first.
    fresh: [Frame; DEPTH],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// The return address into this frame, and its stack and frame pointer.
    pc: u64,
    sp: u64,
    rbp: u64,
    /// Where the caller's rbp was read; 0: it is the same as this frame's.
    rbp_from: u64,
    /// Where the caller's stack pointer was read; 0: it was computed.
    sp_from: u64,
    /// The hash of the addresses from the outermost frame to this one, without our own.
    hash: u64,
    /// How many addresses `hash` covers.
    count: u64,
}

/// The registers of a frame that unwinding needs.
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

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Reached a frame of the last walk, so many frames from the outermost.
    Met(usize),
    /// Reached the outermost frame, by the word of its table.
    Outermost,
    /// Reached code that no table describes.
    NoCfi,
    /// Reached an address in no module: generated code, or no code at all, where a coroutine's part of the
    /// stack ends and the words beyond are not its caller's. The platform's unwinder would read the
    /// instructions there, mapped or not.
    NoModule,
    /// Read a return address of 0: that of the outermost frame as well.
    Zero,
    /// Found a caller's frame where none can be.
    Invalid,
    /// Reached the most frames that are kept.
    Deep,
}

impl End {
    fn is_truncated(self) -> bool {
        matches!(self, End::NoCfi | End::NoModule | End::Invalid | End::Deep)
    }

    /// True if the words that link the frames, and nothing else, decide that a walk ends so.
    fn is_repeatable(self) -> bool {
        matches!(self, End::Met(_) | End::Outermost | End::NoCfi)
    }
}

/// Where a frame's rule leads.
enum Step {
    Caller(Registers),
    /// To the code that a signal interrupted.
    Interrupted(Registers),
    End(End),
}

static ARMED: AtomicBool = AtomicBool::new(false);

pub fn arm() {
    ARMED.store(address::has_tables(), Ordering::Release);
}

/// Forgets the rules of all addresses. To be called after an unload.
pub fn forget_rules() {
    rules::forget();
}

impl LastWalk {
    /// Unwinds the calling thread's stack and returns its hash. Until [`Self::release`] the frames stay for
    /// [`Self::copy_frames`]. `None`: the platform's unwinder has to do it.
    ///
    /// # Safety
    /// `this` is null, or the calling thread's own.
    #[inline(always)]
    pub unsafe fn capture(this: *mut LastWalk) -> Option<u64> {
        if this.is_null() || !ARMED.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the caller's word. A signal handler may come in between, and look at `stack` and `busy`
        // only.
        unsafe { (*this).begin() }
    }

    #[inline(never)]
    fn begin(&mut self) -> Option<u64> {
        let here = Registers::here();
        // With a walk under way, either a signal handler further in has come here, or the thread left that
        // walk by a long jump, and is now further out.
        if !self.stack.holds(here.sp) || (self.busy != 0 && here.sp < self.busy) {
            return None;
        }
        self.busy = here.sp;
        compiler_fence(Ordering::SeqCst);
        let hash = self.unwind(here);
        if hash.is_none() {
            self.usable = false;
            // SAFETY: a reference.
            unsafe { LastWalk::release(self) };
        }
        hash
    }

    /// Ends the walk: its frames may change again.
    ///
    /// # Safety
    /// `this` is the calling thread's own.
    #[inline(always)]
    pub unsafe fn release(this: *mut LastWalk) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the caller's word.
        unsafe { (*this).busy = 0 };
    }

    /// Whether a walk is under way.
    ///
    /// # Safety
    /// `this` is the calling thread's own.
    pub unsafe fn is_busy(this: *const LastWalk) -> bool {
        // SAFETY: the caller's word.
        unsafe { (&raw const (*this).busy).read_volatile() != 0 }
    }

    /// Ends a walk whose frames are gone; nothing is checked against it.
    ///
    /// # Safety
    /// `this` is the calling thread's own, and no walk goes on with it.
    pub unsafe fn abandon(this: *mut LastWalk) {
        // SAFETY: the caller's word.
        unsafe {
            (&raw mut (*this).usable).write_volatile(false);
            (&raw mut (*this).busy).write_volatile(0);
        }
    }

    fn unwind(&mut self, here: Registers) -> Option<u64> {
        let epoch = rules::epoch();
        let old = if self.usable && self.epoch == epoch { self.len } else { 0 };
        self.epoch = epoch;
        // Until this walk is whole there is none to check against.
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
        if len + walked.unwound > DEPTH {
            return None;
        }
        for frame in self.fresh[..walked.unwound].iter().rev() {
            if !is_own(frame.pc) {
                hash = chain(hash, frame.pc);
                count += 1;
            }
            self.frames[len] = Frame { hash, count, ..*frame };
            len += 1;
        }
        self.len = len;
        self.usable = walked.end.is_repeatable() && !walked.signal;
        if count <= LIMIT as u64 && walked.end != End::Deep { Some(hash) } else { self.shortened() }
    }

    /// Returns the hash of a stack that is too deep to be shown whole.
    #[cold]
    #[inline(never)]
    fn shortened(&self) -> Option<u64> {
        let shown = self.frames[..self.len].iter().map(|frame| frame.pc).filter(|pc| !is_own(*pc));
        let hidden = shown.clone().count().checked_sub(LIMIT)?;
        Some(chained(SEED_TRUNCATED, shown.skip(hidden)))
    }

    /// Copies the return addresses, innermost first.
    pub fn copy_frames(&self, into: &mut Frames) {
        let mut shown = self.frames[..self.len].iter().rev().map(|frame| frame.pc).filter(|pc| !is_own(*pc));
        if shown.all(|pc| into.push(pc)) && self.truncated {
            into.truncate();
        }
    }

    /// Unwinds frame by frame into `fresh`, until it reaches one of the `old` frames of the last walk from
    /// which on nothing changed.
    #[inline(always)]
    fn walk(&mut self, mut at: Registers, mut old: usize) -> Option<Walked> {
        let stack = at.sp..self.stack.end();
        let mut walked = Walked { unwound: 0, end: End::Deep, signal: false };
        // The address of a call lies before the one it returns to; the innermost instruction is where it is.
        let mut exact = true;
        loop {
            // Old frames further in have returned.
            while old > 0 && self.frames[old - 1].sp < at.sp {
                old -= 1;
            }
            if old > 0 && self.frames[old - 1].is_at(&at) {
                let changed = self.first_changed(old);
                if changed == 0 {
                    walked.end = End::Met(old);
                    return Some(walked);
                }
                // As far as the frame at `changed` nothing changed; its caller is another.
                if changed < old - 1 {
                    for frame in (changed + 1..old).rev() {
                        *self.fresh.get_mut(walked.unwound)? = self.frames[frame];
                        walked.unwound += 1;
                    }
                    let Frame { pc, sp, rbp, .. } = self.frames[changed];
                    (at, exact) = (Registers { pc, sp, rbp }, false);
                }
                old = changed;
            }
            let Some(frame) = self.fresh.get_mut(walked.unwound) else { return Some(walked) };
            let rule = rules::of(at.pc.wrapping_sub(u64::from(!exact)));
            *frame = Frame { pc: at.pc, sp: at.sp, rbp: at.rbp, rbp_from: 0, sp_from: 0, hash: 0, count: 0 };
            walked.unwound += 1;
            let Some(rule) = rule else {
                walked.end = End::NoModule;
                return Some(walked);
            };
            match step(rule, at, &stack, frame)? {
                Step::Caller(caller) => (at, exact) = (caller, false),
                // Such a frame's words lie elsewhere than a call's: this walk cannot be checked against
                // later.
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

    /// Reads again the words that led from frame `old - 1` of the last walk to the outermost. Returns the
    /// innermost frame that leads to another caller than then; 0 if none does.
    #[inline(always)]
    fn first_changed(&self, old: usize) -> usize {
        let mut inner = old - 1;
        while inner > 0 {
            let (frame, caller) = (&self.frames[inner], &self.frames[inner - 1]);
            // SAFETY: these words lay on this thread's stack when they were read. It has not moved, and does
            // not shrink.
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

/// What a walk found.
struct Walked {
    /// How many frames are in `fresh`.
    unwound: usize,
    end: End,
    /// A signal interrupted one of its frames.
    signal: bool,
}

impl Frame {
    #[inline(always)]
    fn is_at(&self, at: &Registers) -> bool {
        self.sp == at.sp && self.pc == at.pc && self.rbp == at.rbp
    }
}

/// Unwinds one frame by its rule, and keeps where the caller's registers were read. `None`: the rule cannot
/// tell.
#[inline(always)]
fn step(rule: Rule, at: Registers, stack: &Range<u64>, frame: &mut Frame) -> Option<Step> {
    let word = |address| word(address, stack);
    const INVALID: Option<Step> = Some(Step::End(End::Invalid));
    let (cfa, rbp_from) = match rule.kind() {
        Kind::Special => return special(rule, at, stack),
        Kind::Saved => {
            frame.sp_from = at.rbp.wrapping_add(rule.cfa());
            let Some(cfa) = word(frame.sp_from) else { return INVALID };
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
        return INVALID;
    }
    let mut caller = Registers { pc: 0, sp: cfa, rbp: at.rbp };
    if rbp_from != 0 {
        frame.rbp_from = rbp_from;
        let Some(rbp) = word(rbp_from) else { return INVALID };
        caller.rbp = rbp;
    }
    let Some(pc) = word(cfa - 8) else { return INVALID };
    caller.pc = pc;
    Some(if pc == 0 { Step::End(End::Zero) } else { Step::Caller(caller) })
}

#[cold]
fn special(rule: Rule, at: Registers, stack: &Range<u64>) -> Option<Step> {
    match rule {
        Rule::END => Some(Step::End(End::Outermost)),
        Rule::NO_CFI => Some(Step::End(End::NoCfi)),
        Rule::SIGNAL => {
            let register = |offset| word(at.sp.wrapping_add(offset), stack);
            let (pc, sp) = (register(interrupted::PC)?, register(interrupted::RSP)?);
            let rbp = register(interrupted::RBP)?;
            // Only on this very stack: a handler may have interrupted a coroutine on another.
            (at.sp < sp && sp < stack.end).then_some(Step::Interrupted(Registers { pc, sp, rbp }))
        }
        _ => None,
    }
}

/// Reads a word of the stack between where the walk began and the thread's outermost frame. A frame's word
/// may lie below its own stack pointer, where a function that is about to return has left it.
#[inline(always)]
fn word(address: u64, stack: &Range<u64>) -> Option<u64> {
    if address < stack.start || address > stack.end - 8 {
        return None;
    }
    // SAFETY: between the calling thread's stack pointer and the end of its stack.
    Some(unsafe { read(address) })
}

/// Reads a word.
///
/// # Safety
/// `address` is that of eight bytes of the calling thread's stack.
#[inline(always)]
unsafe fn read(address: u64) -> u64 {
    // SAFETY: the caller's word. Volatile, for it may belong to a frame that the compiler thinks nobody
    // reads.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}
