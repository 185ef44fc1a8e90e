//! When holders are searched for, and on what thread: at a step's end, where the interpreter calls back, and at the end of all.
//! What is asked, and what an answer tells, is for [`holders`] to know.

use std::sync::atomic::{AtomicBool, Ordering::*};

use super::{Guard, RAN_OUT, REPORTED, with_services};
use crate::analysis::analyzer::{ANALYZER, Analyzer};
use crate::analysis::holders::{self, Occasion};
use crate::analysis::{loop_steps, step_schedule};
use crate::settings;
use crate::shield::shield;
use crate::state;
use crate::writer::signals::Undisturbed;
use leaktrace_core::ledger::Ledger;

/// Whether a search of the steps that there are was asked for. For one of drafted steps nothing is drained: which steps there
/// are may be decided otherwise yet.
static OF_STEPS: AtomicBool = AtomicBool::new(false);

/// Has what leaks by now searched for, since it shows what the program's loop may be, and that it has had so
/// many iterations, beside the steps that there are. From a hook.
#[cold]
pub fn loop_was_drafted(iterations: u32) {
    let is_due = |analyzer: &mut Analyzer| {
        analyzer.searches.set_level(loop_steps::level());
        let steps = analyzer.ledger.step_count().saturating_add(iterations);
        let is_due = analyzer.searches.is_look_due(steps);
        // Between the steps of optimizers the next one of these looks as ever.
        if is_due && loop_steps::is_searching() {
            step_schedule::postpone_look(steps);
        }
        is_due
    };
    if ANALYZER.lock().is_some_and(|mut a| a.as_deref_mut().is_some_and(is_due)) {
        with_services(|services| (services.ask_for_search)());
    }
}

/// Has holders searched for by the interpreter's thread, in the steps that there are.
pub(super) fn ask_for_search() {
    OF_STEPS.store(true, Release);
    with_services(|services| (services.ask_for_search)());
}

/// Searches for who holds what leaks, if that can be done here and now. The lock is released meanwhile: a
/// search may take long, and others have events to drain. `drafted`: a ledger to be judged in place of the
/// analyzer's own.
pub(super) fn search(mut guard: Guard, occasion: Occasion, drafted: Option<Ledger>) -> Option<Guard> {
    if !settings::get().holders {
        return Some(guard);
    }
    let may_run = with_services(|s| (s.may_search)()) == Some(true);
    // At the end there is no other time: that nothing can be searched is said then.
    if !may_run && occasion != Occasion::End {
        if drafted.is_none() {
            ask_for_search();
        }
        return Some(guard);
    }
    let Some(analyzer) = guard.as_mut() else { return Some(guard) };
    analyzer.searches.set_level(loop_steps::level());
    let question = analyzer.searches.question(drafted.as_ref().unwrap_or(&analyzer.ledger), occasion);
    let obstacle = || with_services(|s| (s.search_obstacle)()).flatten();
    if question.is_empty() || analyzer.searches.is_obstructed(may_run, obstacle) || !may_run {
        return Some(guard);
    }
    drop(guard);
    let answer = holders::search(&question, |wanted, time| {
        with_services(|services| (services.search)(wanted, time)).unwrap_or_default()
    });
    let mut guard = ANALYZER.lock()?;
    // Without memory to catch up the answer stands as it was found.
    match (guard.as_mut(), &drafted) {
        (Some(analyzer), Some(ledger)) => analyzer.searches.record(ledger, &question, &answer),
        (Some(analyzer), None) => {
            analyzer.drain();
            analyzer.searches.record(&analyzer.ledger, &question, &answer);
        }
        (None, _) => {}
    }
    Some(guard)
}

/// Searches for holders, since the interpreter calls back for that, GIL in hand.
pub fn search_when_asked() {
    if !state::is_recording() || !settings::get().holders {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    shield(|| {
        let Some(mut guard) = ANALYZER.lock() else { return };
        let ran_out = RAN_OUT.swap(false, AcqRel);
        let of_steps = OF_STEPS.swap(false, AcqRel);
        // Where the program's loop was not chosen yet, draining events would have it chosen too early.
        if !ran_out && (!of_steps || loop_steps::is_searching()) {
            if let Some(ledger) = guard.as_mut().and_then(|analyzer| analyzer.drafted()) {
                search(guard, Occasion::Look, Some(ledger));
            }
            return;
        }
        if !guard.as_mut().is_some_and(|analyzer| analyzer.drain()) {
            return;
        }
        let occasion = match REPORTED.swap(false, AcqRel) {
            _ if ran_out => Occasion::Memory,
            true => Occasion::Step,
            false => Occasion::Look,
        };
        let mut guard = search(guard, occasion, None);
        if let Some(analyzer) = guard.as_mut().and_then(|guard| guard.as_mut()).filter(|_| ran_out) {
            analyzer.write_out_of_memory();
        }
    });
}
