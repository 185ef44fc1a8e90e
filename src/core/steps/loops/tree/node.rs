//! A loop in the context that it runs in: what it did, how the ends of its iterations showed, and what these are worth.

use super::super::shadow::Shown;
use super::stepless::Counts;
use super::{End, Id, NONE};
use crate::format::backfilled::BackfilledBoundary;

/// Proofs that are so few beside generators made anew do not show all iterations.
pub(in super::super) const FEW_PROOFS: u32 = 2;
const MANY_ANEW: u32 = 8;

/// A loop lengthens if it came round so many times as often, each time that it was entered, in the later ones of so many.
/// One that goes over what each round adds to comes to three times as often.
const LENGTHENS: f64 = 2.0;
const LENGTHENS_FROM: f64 = 4.0;

/// The times before with which a loop's rounds are compared, the share by which they may differ and yet be alike, and the share
/// of all times that are unlike, from which on they are of no one length.
const RECENT: usize = 3;
const ALIKE: f64 = 0.125;
const UNEVEN: f64 = 0.33;
/// How an end of an iteration was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in super::super) enum Sign {
    /// The loop was left.
    Left = 0,
    /// The same activation came back to an earlier instruction, or something it called without C in between
    /// was called anew.
    Proof = 1,
    /// Something it called was called anew, with C in between this many times: C may have called repeatedly
    /// by itself.
    Through1 = 2,
    Through2 = 3,
    Through3 = 4,
    /// Everything stands where it stood, but Python made objects in between: another thread may have made
    /// them.
    Again = 5,
    /// A generator that stands still in a loop of its own gave way to one that was made since.
    Anew = 6,
    /// The variable of the loop names another item.
    Variable = 7,
    /// A loop inside, and nothing else, began again with its first item.
    Within = 8,
}

impl Sign {
    pub fn through(crossings: usize) -> Sign {
        [Sign::Proof, Sign::Through1, Sign::Through2, Sign::Through3][crossings.min(3)]
    }
}

/// A loop in a context.
#[derive(Clone, Debug)]
pub(in super::super) struct Node {
    pub parent: Id,
    pub(super) child: Id,
    pub(super) sibling: Id,
    /// Which code it is of, and which of its loops; a thread's root has no loop.
    pub code: u32,
    pub number: u8,
    pub is_root: bool,
    pub library: bool,
    pub comprehension: bool,
    /// It is a generator's, which feeds another loop.
    pub iterated: bool,
    /// The framework's own.
    pub framework: bool,
    /// No loop in the code, but a call from which C calls again and again.
    pub is_call: bool,
    /// What tasks of an event loop begin with, each time anew.
    pub is_task: bool,
    /// Library code runs between the loop around it and this one.
    pub across: bool,
    /// It takes turns with a loop of the level that was chosen.
    pub takes_turns: bool,
    /// It also runs inside itself.
    pub(super) recursive: bool,
    pub instances: u32,
    /// The most iterations that were under way when it was entered: of as many threads or tasks.
    pub(super) at_once: u32,
    /// Its iterations before it was entered for the 2^k-th time, the last time that this was so, and the time before.
    pub(super) rounds_before: [u64; 2],
    /// Its iterations when it was entered last, and how many there were each of the last times before, the latest first.
    pub(super) rounds_at_entry: u64,
    pub(super) rounds_lately: [u64; RECENT],
    /// Times that these were as many as one of the recent times, or nearly so, and times that they were not.
    pub(super) even: u32,
    pub(super) uneven: u32,
    /// Optimizer steps when it was entered last.
    pub(super) entered: u32,
    /// Times that it was entered a few optimizer steps after the time before, and times that it was not.
    pub(super) often: u32,
    pub(super) seldom: u32,
    /// Iterations under way.
    pub open: u32,
    /// Events seen with this as the innermost loop, and those among them that gave memory back, and that only copied.
    pub events: u64,
    pub frees: u64,
    pub copies: u64,
    /// Those among them by which a model is made.
    pub built: u64,
    /// Optimizer steps seen with this as the innermost loop, and as the innermost of those that are not the framework's.
    pub optimizers: u64,
    pub(super) optimizers_here: u32,
    /// Backward passes that began with this as the innermost loop.
    pub backwards: u64,
    /// The calls in it of compiled functions that train.
    pub updates: u64,
    /// Optimizer steps in it, or in a loop inside; and those before it was entered for the second time.
    pub(super) steps: u32,
    pub(super) first_steps: Option<u32>,
    /// There were such.
    pub trains: bool,
    /// Ends of iterations, by sign.
    pub ends: [u32; 9],
    /// Depth of the deepest frame that showed an end, from 1; and of the highest one that proved one.
    pub depth: u16,
    pub highest: u16,
    /// What its ends are, once a level was chosen.
    pub mark: Mark,
    /// It is of the level, or lies inside a loop that is.
    pub within: bool,
    /// Of a loop in which optimizers step: the node that it is while none has stepped since it was entered. Of that: this one.
    pub(super) stepless: Id,
    pub(super) steps_in: Id,
    /// The most rounds before the first optimizer step, each time that it was entered.
    pub(super) rounds_before_step: u32,
    /// What it had counted when it was entered last.
    pub(super) at_entry: Counts,
}

/// What the ends of a loop's iterations are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Mark {
    /// The signs that count, as bits; none for a loop that is neither of the level nor around it.
    pub signs: u16,
    /// Loops from the outermost in, from 1.
    pub level: u8,
    /// Of the level: they end steps.
    pub main: bool,
}

impl Mark {
    #[inline]
    pub fn counts(self, sign: Sign) -> bool {
        self.signs >> sign as u8 & 1 == 1
    }

    /// Returns the boundary that an end is, if it counts.
    pub fn place(self, end: &End) -> Option<BackfilledBoundary> {
        let (seq, ns) = (end.at.seq, end.at.ns);
        self.counts(end.sign).then_some(BackfilledBoundary {
            seq,
            ns,
            depth: self.level,
            ends_step: self.main,
        })
    }
}

impl Node {
    /// Counts an event. `builds`: by which a model is made.
    pub fn count(&mut self, shown: Shown, builds: bool) {
        self.events += u64::from(shown != Shown::Work);
        self.frees += u64::from(shown == Shown::Free);
        self.copies += u64::from(shown == Shown::Copy);
        self.built += u64::from(builds);
    }

    /// Counts an end of an iteration, shown by the frame at that depth.
    #[inline]
    pub fn ends(&mut self, sign: Sign, depth: usize) {
        let count = &mut self.ends[sign as usize];
        *count = count.saturating_add(1);
        let depth = depth.min(usize::from(u16::MAX)) as u16;
        self.depth = self.depth.max(depth);
        if sign == Sign::Proof {
            self.highest = self.highest.min(depth);
        }
    }

    pub(super) fn new(parent: Id, code: u32, number: u8) -> Node {
        Node {
            parent,
            child: NONE,
            sibling: NONE,
            code,
            number,
            is_root: false,
            library: false,
            comprehension: false,
            iterated: false,
            framework: false,
            is_call: false,
            is_task: false,
            across: false,
            takes_turns: false,
            recursive: false,
            instances: 0,
            at_once: 0,
            rounds_before: [0; 2],
            rounds_at_entry: 0,
            rounds_lately: [0; RECENT],
            even: 0,
            uneven: 0,
            entered: 0,
            often: 0,
            seldom: 0,
            open: 0,
            events: 0,
            frees: 0,
            copies: 0,
            built: 0,
            optimizers: 0,
            backwards: 0,
            updates: 0,
            steps: 0,
            first_steps: None,
            optimizers_here: 0,
            trains: false,
            ends: [0; 9],
            depth: 0,
            highest: u16::MAX,
            mark: Mark::default(),
            within: false,
            stepless: NONE,
            steps_in: NONE,
            rounds_before_step: 0,
            at_entry: Counts::default(),
        }
    }

    /// The best sign there is of an iteration's end, other than that the loop was left.
    fn sign(&self) -> Option<Sign> {
        let signs = [
            Sign::Proof,
            Sign::Variable,
            Sign::Anew,
            Sign::Through1,
            Sign::Through2,
            Sign::Through3,
            Sign::Within,
            Sign::Again,
        ];
        signs.into_iter().find(|&s| self.ends[s as usize] > 0)
    }

    /// The iterations seen: those that were left, those under way, and those with the best sign. Where most
    /// have no other sign than objects that Python made, and a few do more and have a better one, both count.
    pub fn iterations(&self) -> u64 {
        let mask = self.mask();
        let counted = (0..self.ends.len()).filter(|sign| mask >> sign & 1 == 1);
        counted.map(|sign| u64::from(self.ends[sign])).sum::<u64>() + u64::from(self.open)
    }

    /// Whether it comes round oftener and oftener each time that it is entered, as a loop over what the loop around it adds
    /// to does.
    pub fn lengthens(&self) -> bool {
        // Entered so often: half of them lie between the two.
        let half = f64::from(self.instances.checked_ilog2().map_or(0, |k| (1u32 << k) / 2));
        let [until_last, until_before] = self.rounds_before;
        let (early, late) = (
            until_before as f64 / (half - 1.0).max(1.0),
            until_last.saturating_sub(until_before) as f64 / half,
        );
        half >= LENGTHENS_FROM && late >= LENGTHENS * early.max(1.0) && !self.is_shared()
    }

    /// Whether most of those who entered it were in it at the same time: how often it came round in between tells nothing.
    fn is_shared(&self) -> bool {
        self.at_once > 1 && self.at_once.saturating_mul(2) >= self.instances
    }

    /// Whether the times that it came round are of no one length, as answers are; epochs are of one, or of a few that come by
    /// turns.
    pub fn is_uneven(&self) -> bool {
        f64::from(self.uneven) >= UNEVEN * f64::from(self.even + self.uneven).max(1.0) && !self.is_shared()
    }

    /// Takes in that it is entered once more: how often it came round the time before is known.
    pub(super) fn note_rounds(&mut self) {
        let all = self.iterations();
        let rounds = all - std::mem::replace(&mut self.rounds_at_entry, all).min(all);
        let is_like = |&before: &u64| rounds.abs_diff(before) as f64 <= ALIKE * rounds.max(before) as f64;
        match self.rounds_lately.iter().any(is_like) {
            _ if self.rounds_lately.contains(&0) => {}
            true => self.even = self.even.saturating_add(1),
            false => self.uneven = self.uneven.saturating_add(1),
        }
        self.rounds_lately.rotate_right(1);
        self.rounds_lately[0] = rounds;
    }

    /// What yields the items of another loop, or is written as an expression: mostly a part of the loop
    /// around it.
    pub fn is_expression(&self) -> bool {
        self.comprehension || self.iterated || self.is_call
    }

    /// True if it is the loop of a function that yields.
    pub fn is_generator(&self) -> bool {
        self.iterated && !self.comprehension && !self.is_call
    }

    /// True if it is entered within every few optimizer steps, or was for as long as that could be seen.
    pub fn is_routine(&self) -> bool {
        self.often >= self.seldom
    }

    /// The signs to end a step by, as bits.
    pub fn mask(&self) -> u16 {
        let best = self.sign().unwrap_or(Sign::Proof);
        let count = |sign: Sign| self.ends[sign as usize];
        let proofs = count(best);
        // The first iteration does more than the others, and may prove to be one.
        let beside = |sign: Sign| count(sign) > proofs;
        let anew = proofs <= FEW_PROOFS && count(Sign::Anew) >= MANY_ANEW * proofs;
        let bit = |sign: Sign, counts: bool| u16::from(counts) << sign as u8;
        // An iteration shows by one of these: what the loop's own code does, or its variable.
        let own = matches!(best, Sign::Proof | Sign::Variable);
        bit(Sign::Left, true)
            | bit(best, true)
            | bit(Sign::Proof, own)
            | bit(Sign::Variable, own)
            | bit(Sign::Within, !own || beside(Sign::Within))
            | bit(Sign::Again, beside(Sign::Again))
            | bit(Sign::Anew, anew)
    }
}
