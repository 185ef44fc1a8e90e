//! The fix of a finding: one sentence for somebody who is at that line. Knows a finding, no format.

use super::labels::{called, keepers};
use super::{holder, is_garbage, is_named};
use crate::frameworks::{self, Arena, Framework, KEYS, Models, Optimizers};
use crate::holders::{GRADIENT_CYCLE, HOOK_CYCLE, UNSEEN};
use crate::ledger::verdict::Kind;
use crate::report::{Finding, Frame, Holder};

/// What leads from a tensor to its graph, in a holder's path.
const GRAPH: &str = ".grad_fn";
/// What leads from a leaf to the graph of its gradient.
const GRADIENT_GRAPH: &str = ".grad.grad_fn";
/// Where `contextlib.ExitStack` keeps what it is to call.
const EXIT_CALLBACKS: &str = "._exit_callbacks";
/// How a path leads through the parts of a class, and through an exception.
const CLASS_PARTS: [&str; 3] = ["getset_descriptor.", "type.__mro__", "type.__dict__"];
const TRACEBACK: &str = ".__traceback__";
/// Where hooks are kept. Those of a graph go with it.
const HOOKS: [&str; 2] = ["_hooks", " → its hooks"];
/// How the path goes on from a function, and from a generator or a coroutine that is suspended.
const FUNCTION: [&str; 3] = [" → function", " → closure variable", " → default"];
const SUSPENDED: [&str; 2] = [" → locals of ", "() local `"];
/// What stands for one of many entries, and for parts that have no way in common.
const ENTRY: &str = "[*]";
/// How a key begins that is known by its type only.
const OF_TYPE: &str = "[<";
const CACHED: &str = " → lru_cache";
const PARTS: &str = " → …";
const ATTRIBUTES: &str = " → .";
/// Where `weakref.finalize` keeps its own objects.
const FINALIZERS: &str = "weakref.finalize._registry";
/// Iterators that keep what they have handed out, by what a path says of them, and what to do.
const ITERATORS: [(&str, &str); 2] = [
    (
        " → itertools.cycle",
        "restart the loop over the data instead: `itertools.cycle` keeps every item to hand it out again",
    ),
    (
        " → itertools.tee",
        "advance or drop the iterators of `itertools.tee` that are behind: it keeps what one of them has not reached",
    ),
];
/// The files of a package of metrics, which gather what they are given.
const METRICS: &str = "/torchmetrics/";
/// Where trainers keep what is logged.
const LOGGED: [&str; 5] = ["logged", "callback_metrics", "progress_bar_metrics", "_log_metrics", "_results"];
/// How the path goes on from a handler of `logging` that gathers records, and to what a message was given.
const LOG_HANDLER: &str = "handlers[";
const LOG_ARGUMENT: &str = "[*].args[";
/// Where an executor keeps calls that were not run yet.
const WORK_QUEUE: &str = "._work_queue";
/// How the path goes on from a future, and from a task, to its result.
const FUTURE: &str = "._result";
const TASK: &str = ".result()";
/// What stands for the rest of a chain of objects, each of which refers to the one before.
const CHAIN: &str = "…";
/// Allocators give a block of so many bytes for a number.
const NUMBER: f64 = 512.0;
/// More variables than that are not named one by one.
const MOST_NAMED: usize = 2;
const BREAK_CYCLE: &str = "break the reference cycle (a weak reference, or `del` of what closes it)";

/// Returns what would fix a finding; `None` where nothing can be said, or nothing needs to be fixed.
pub fn advice(f: &Finding) -> Option<String> {
    let first = keepers(f).first().map(|h| h.path.as_str()).filter(|path| is_named(path));
    let named = called(f);
    let is_held_by = |cycle| keepers(f).first().is_some_and(|h| h.path.starts_with(cycle));
    let of = frameworks::of_block(f.sites.first().and_then(|site| site.entry_point.as_deref()));
    Some(match f.kind {
        _ if f.sites.is_empty() => return None,
        Kind::Periodic if f.layer == "code" => of.recompiles?.0.to_owned(),
        Kind::Leak | Kind::Growing if f.layer == "code" => {
            let (advice, release) = of.recompiles?;
            format!("{advice}; {release}")
        }
        Kind::Leak | Kind::Growing if is_garbage(&f.holders) => of_cycle(f),
        Kind::Leak | Kind::Growing if f.layer != "block" => {
            if let Some(arena) = f.sites.first().filter(|_| f.layer == "driver").and_then(|s| arena(&s.stack))
            {
                return Some(arena.advice.to_owned());
            }
            if let Some(name) = named.filter(|_| f.layer == "host") {
                return Some(format!(
                    "reuse one pinned buffer, or keep a copy that is not pinned in {}",
                    holder(name)
                ));
            }
            if let Some(name) = named {
                return Some(format!(
                    "copy to the host what {} needs to keep, or remove entries that are no longer needed",
                    holder(name)
                ));
            }
            let by = f.sites.first().and_then(|s| s.entry_point.as_deref());
            let by = by.map_or_else(String::new, |name| format!(" what {name} allocated"));
            format!("free{by} in the step that allocates it, or allocate it once and keep it")
        }
        Kind::Leak | Kind::Growing
            if of.gradient_cycle.is_some()
                && (is_held_by(GRADIENT_CYCLE)
                    || keepers(f).iter().any(|h| h.path.contains(GRADIENT_GRAPH))) =>
        {
            of.gradient_cycle?.to_owned()
        }
        Kind::Leak | Kind::Growing if is_held_by(HOOK_CYCLE) => of.hook_cycle?.to_owned(),
        Kind::Leak | Kind::Growing => match first.zip(named) {
            Some((_, name)) if f.blocks_per_step == 0.0 => {
                format!(
                    "limit how far {} grows: keep only its newest part, or start over now and then; if all of it is needed, \
                     move each part to the host",
                    holder(name)
                )
            }
            Some((path, name)) => of_holder(f, path, &holder(name), of),
            None => match of.kept_numbers.filter(|(bytes, _)| is_kept_number(f, *bytes)) {
                Some((_, advice)) => advice.to_owned(),
                None => {
                    "find what keeps the result of this line from one step to the next, and release it there"
                        .into()
                }
            },
        },
        Kind::LastLoop => {
            let name = named.map_or_else(|| "it".to_owned(), holder);
            format!(
                "if the device need not keep all of it at once, move each part to the host as it comes ({name})"
            )
        }
        Kind::AfterLast => {
            let name = named.map_or_else(|| "it".to_owned(), holder);
            format!(
                "if it goes on for as long as the program runs, limit what {name} keeps; to have it judged, call \
                 leaktrace_step() or end a range once per iteration (LEAKTRACE_STEP=api or range:NAME)"
            )
        }
        Kind::PendingGc => of_cycle(f),
        Kind::Residue => {
            let from = named.map_or_else(String::new, |path| format!(" ({})", holder(path)));
            let release = of
                .releases_cache
                .map_or_else(String::new, |call| format!(" before cached memory is released with {call}"));
            format!("drop the last reference{from}{release}")
        }
        Kind::Fragmentation => {
            let setting = of.grows_segments.map_or_else(String::new, |set| format!(", or run with {set}"));
            format!("allocate what stays before what comes and goes{setting}")
        }
        Kind::CarryOver => {
            let of_gradients =
                of.gradients.filter(|(ending, _)| first.is_some_and(|path| path.ends_with(ending)));
            if let Some((_, advice)) = of_gradients {
                return Some(advice.to_owned());
            }
            let given = of.gives_on.map_or_else(String::new, |how| {
                format!("donate it ({how}) if only the next step needs it; else ")
            });
            let (what, them) = match variables(f) {
                Some(names) => (names.join(" and "), if names.len() > 1 { "them" } else { "it" }),
                None => ("it".to_owned(), "it"),
            };
            format!(
                "{given}`del` {what}, or let the function that holds {them} return, before the next step begins"
            )
        }
        _ => return None,
    })
}

/// Returns whether a finding is of blocks of so many bytes each, of which no holder was found: numbers that a framework keeps.
fn is_kept_number(f: &Finding, bytes: u64) -> bool {
    let is_unseen = |h: &Holder| h.path == UNSEEN;
    f.live_blocks > 0 && f.live_bytes == bytes * f.live_blocks && f.holders.iter().all(is_unseen)
}

/// What to do about a reference cycle.
fn of_cycle(f: &Finding) -> String {
    let or = match f.is_collected {
        true => "call `gc.collect()` more often, where a pause does not matter",
        false if f.collector_is_off => "switch garbage collection on again (`gc.enable()`)",
        false => "call `gc.collect()` where a pause does not matter",
    };
    let path = keepers(f).first().map_or("", |h| h.path.as_str());
    let break_it = match variable_of_exception(path) {
        Some((function, variable)) => format!(
            "set `{variable}` in {function} to None once the exception is handled: its traceback keeps the frame that has this \
             variable"
        ),
        None if CLASS_PARTS.iter().any(|part| path.contains(part)) => {
            "make the class once, outside of the loop: every class is in a reference cycle with its own parts"
                .to_owned()
        }
        None => BREAK_CYCLE.to_owned(),
    };
    format!("{break_it}, or {or}")
}

/// Returns the function and the variable of it that has an exception, where a path leads from one through its traceback.
fn variable_of_exception(path: &str) -> Option<(&str, &str)> {
    let (before, _) = path.split_once(TRACEBACK)?;
    let (before, _) = before.rsplit_once("` → ")?;
    let (function, variable) = before.rsplit_once(" local `")?;
    let function = function.rsplit([' ', '→']).next()?;
    (!variable.contains('`') && function.ends_with("()")).then_some((function, variable))
}

/// Returns the arena that an allocation with this stack is for.
pub fn arena(stack: &[Frame]) -> Option<&'static Arena> {
    frameworks::arena_of(stack.iter().map(|frame| frame.frame.file.as_str()))
}

/// Returns whether most of what was kept are a model's variables, beside their gradients.
fn is_model(f: &Finding, models: &Models, of: &Framework) -> bool {
    let makes = |frame: &Frame| models.are_made_in(&frame.frame.file, &frame.frame.function);
    let made = f.sites.iter().filter(|site| site.stack.iter().any(makes)).map(|site| site.live_bytes);
    let are_gradients = |h: &&Holder| of.gradients.is_some_and(|(ending, _)| h.path.ends_with(ending));
    let gradients = f.holders.iter().filter(are_gradients).map(|h| h.bytes).sum::<u64>();
    let all = f.holders.iter().map(|h| h.bytes).sum::<u64>().max(1);
    let others = f.live_bytes as f64 * all.saturating_sub(gradients) as f64 / all as f64;
    2.0 * made.sum::<u64>() as f64 > others
}

/// The variables whose graphs hold what grows, where there are several: the graph of each reaches back through the steps.
fn with_graphs(f: &Finding) -> Vec<String> {
    let of = |path: &str| Some(holder(without_part(path.split_once(GRAPH)?.0)));
    let mut all: Vec<String> = f.holders.iter().filter_map(|h| of(&h.path)).collect();
    all.sort();
    all.dedup();
    all.truncate(4);
    all
}

/// Returns a path without the number of a part at its end: the graph is to be cut in all parts of a tuple.
fn without_part(path: &str) -> &str {
    let is_number = |part: &str| part.strip_suffix(']').is_some_and(|number| number.parse::<u32>().is_ok());
    path.rsplit_once('[').filter(|(_, part)| is_number(part)).map_or(path, |(whole, _)| whole)
}

/// Names what may be handed on: what an object keeps, before variables that a step computes from it.
fn handed_on(first: &[String], last: &str) -> String {
    let is_part = |name: &&str| name.split('`').nth(1).is_some_and(|path| path.contains(['.', '[']));
    let all = || first.iter().map(String::as_str).chain([last]);
    let mut named: Vec<&str> = all().filter(is_part).collect();
    if named.is_empty() {
        named = all().collect();
    }
    match &named[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => named.concat(),
    }
}

/// Returns whether the calls of a function that run have a variable each: those of a function that calls itself.
fn is_of_running_calls(f: &Finding) -> bool {
    keepers(f).first().is_some_and(|h| {
        // One that something leads to is suspended.
        let frame = h.path.split_once("() local `").filter(|(function, _)| !function.contains(" → "));
        let variable = frame.and_then(|(_, name)| name.strip_suffix('`'));
        variable.is_some_and(|name| !name.contains('`')) && h.blocks as f64 > f.blocks_per_step.max(1.0)
    })
}

/// Returns the optimizer that a path leads through, if it does, and not further to what has many entries for one variable.
fn optimizer<'p>(
    f: &Finding,
    path: &'p str,
    of: &'static Framework,
) -> Option<(&'p str, &'static Optimizers)> {
    let optimizers = of.models.as_ref()?.optimizers.as_ref()?;
    // Others have an attribute `state` too.
    let is_one = f
        .holders
        .iter()
        .any(|h| optimizers.are_named_in(&h.path) || optimizers.have_keys_in(&h.path))
        || f.sites.iter().any(|site| site.stack.iter().any(|frame| optimizers.have_file(&frame.frame.file)));
    let (to, behind) = optimizers.path(path).filter(|_| is_one)?;
    (!behind.contains(ENTRY)).then_some((to, optimizers))
}

/// Returns whether a metric of a package was given what grows, or made it.
fn is_of_metrics(f: &Finding) -> bool {
    f.sites.iter().any(|site| site.stack.iter().any(|frame| frame.frame.file.contains(METRICS)))
}

/// Returns the path of the dict that has what grows as its keys, or in keys that are tuples.
fn has_tensor_as_key(path: &str) -> Option<&str> {
    let (dict, behind) = path.split_once(KEYS)?;
    (behind.is_empty() || behind.starts_with('[') && behind.ends_with(']')).then_some(dict)
}

/// Returns whether the container that grows is called a cache. That is the first one with many entries: what its entries
/// have in turn may be bounded.
fn is_cache(path: &str) -> bool {
    let name = path.split(ENTRY).next().unwrap_or(path).trim_end_matches('`');
    let name = name.rsplit(['.', '`', ' ']).next().unwrap_or(name).to_lowercase();
    path.contains(ENTRY) && name.trim_end_matches('s').ends_with("cache")
}

/// What to do where functions, or suspended ones, are kept that keep what they use; `None`: the path leads through none, or
/// through a single one, which is needed.
fn of_kept(path: &str, name: &str) -> Option<String> {
    // The first that is one of many: a path may begin with a local variable, of a function that runs.
    let many = path.find('[')?;
    let first = |marks: &[&str]| marks.iter().filter_map(|mark| path[many..].find(mark)).min();
    let function = first(&FUNCTION);
    let at = function.into_iter().chain(first(&SUSPENDED)).min()?;
    let (before, behind) = path.split_at(many + at);
    let keeps = if function == Some(at) { "function" } else { "generator" };
    if behind.contains(ENTRY) && !before.contains(ENTRY) {
        return Some(format!(
            "remove entries that are no longer needed from {name}, or drop the {keeps} that has it"
        ));
    }
    Some(match keeps {
        "function" => format!(
            "pass this as an argument, or do not keep the function: a kept function keeps what it uses ({name})"
        ),
        _ => format!(
            "let the generator or coroutine end, or close it (`.close()`); or, if it is a frame that is kept \
             (`inspect.currentframe()`, `sys._getframe()`), drop that: each keeps its variables ({name})"
        ),
    })
}

/// Returns where several paths part, of a path that stands for them.
fn parted(path: &str) -> Option<&str> {
    path.strip_suffix(PARTS).or_else(|| Some(path.split_once(ATTRIBUTES)?.0))
}

/// What would end the growth of a holder, by what its path shows of the cause. `name`: the holder as text names it.
fn of_holder(f: &Finding, path: &str, name: &str, of: &'static Framework) -> String {
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    let in_block = f.bytes_per_step / f.blocks_per_step;
    let copy = if in_block > NUMBER { of.large_copy } else { of.copy };
    if has(&["__traceback__", "tb_frame", "exception", "Traceback", "__cause__", "__context__"]) {
        format!("drop the exception once it is handled: its traceback keeps the frames ({name})")
    } else if has(&[FINALIZERS]) {
        format!(
            "release the objects that have a finalizer once they are no longer used, or call it or its `detach()`: a \
             `weakref.finalize` keeps its arguments as long as its object is alive ({name})"
        )
    } else if has(&[EXIT_CALLBACKS]) {
        format!(
            "close the `ExitStack` in each step (leave its `with` block, or call `close()`): it keeps what it is to call, with its \
             arguments ({name})"
        )
    } else if let Some((_, advice)) = of.own_caches.filter(|(module, _)| path.starts_with(module)) {
        advice.to_owned()
    } else if let Some((_, advice)) = ITERATORS.iter().find(|(kept, _)| has(&[kept])) {
        format!("{advice} ({name})")
    } else if let Some((metric, _)) =
        path.split_once(ENTRY).and_then(|(state, _)| state.rsplit_once('.')).filter(|_| is_of_metrics(f))
    {
        format!(
            "call `reset()` of the metric once its result is computed: it keeps what each `update()` was given ({})",
            holder(metric)
        )
    } else if HOOKS.iter().any(|hooks| path.find(hooks).is_some_and(|at| !path[..at].contains(GRAPH))) {
        format!(
            "remove the hook once it is no longer needed: `handle = ….register_…hook(…)`, `handle.remove()` ({name})"
        )
    } else if let Some((one, optimizers)) = optimizer(f, path, of)
        && ![ENTRY, OF_TYPE, "…"].iter().any(|many| one.contains(many))
    {
        let has_variables = f.holders.iter().any(|h| optimizers.are_named_in(&h.path));
        let advice = if has_variables { optimizers.advice } else { optimizers.stale_advice };
        format!("{advice} ({})", holder(one))
    } else if let Some(models) = &of.models
        && (is_model(f, models, of) || optimizer(f, path, of).is_some())
    {
        format!("{} ({name})", models.advice)
    } else if let Some(variable) = of.variable(path).filter(|variable| variable.contains(ENTRY)) {
        format!("{} ({})", of.new_variables, holder(variable))
    } else if let Some((_, advice)) = of.kept_derivative.filter(|(by, _)| has(&[by])) {
        format!("{advice} ({name})")
    } else if f.bound_bytes.is_some() {
        let bound = if has(&[CACHED]) { "maxsize" } else { "maxlen" };
        format!("give {name} a smaller bound (`{bound}`), or store {copy} in it instead")
    } else if has(&[WORK_QUEUE]) {
        format!(
            "submit fewer calls at a time: wait for results before the next ones, or bound how many wait (a semaphore); {name} \
             keeps what was not run yet"
        )
    } else if let Some((queue, _)) = path.split_once(ENTRY).filter(|_| f.ever_later) {
        format!(
            "empty {} as fast as it is filled, or give it a bound (`maxsize` of a queue, so that the producer waits, or \
             `maxlen` of a deque)",
            holder(queue)
        )
    } else if has(&LOGGED)
        || path.split_once(LOG_HANDLER).is_some_and(|(_, of)| !of.starts_with('\'')) && has(&[LOG_ARGUMENT])
    {
        format!("log a number ({}), not what it was computed from: {name} keeps what is logged", of.number)
    } else if has(&[FUTURE, TASK]) {
        format!(
            "drop each task or future once its result is taken (`add_done_callback(….discard)` where a set keeps it): it \
             keeps the result ({name})"
        )
    } else if let Some(link) = link(path) {
        format!(
            "cut the chain where older objects are no longer needed (`{link} = None`): each object refers to the one before it \
             ({name})"
        )
    } else if path
        .split_once(CHAIN)
        .is_some_and(|(chain, _)| chain.ends_with('`') && chain.contains(FUNCTION[1]))
    {
        format!(
            "do not let each new function call the one before it: all of them, and what they use, are kept ({name})"
        )
    } else if is_of_running_calls(f) {
        format!(
            "the calls that have {name} are still running: return earlier, call in a loop, or `del` it before the call \
             goes on"
        )
    } else if let Some((function, _)) = path.split_once(CACHED) {
        bounded(&format!("the `lru_cache` of {}", holder(function)))
    } else if let Some(advice) = of_kept(path, name) {
        advice
    } else if let Some(dict) = has_tensor_as_key(path) {
        format!(
            "use a key that compares by value in {} (an `int`, `bytes`): a tensor is equal to no other as a key, so none is \
             found again and the dict keeps every one",
            holder(dict)
        )
    } else if is_cache(path) {
        bounded(&name.replacen("[*]`", "`", 1))
    } else if let Some(cut) = of.cuts_graph
        && let [first @ .., last] = &with_graphs(f)[..]
        && has(&[GRAPH])
    {
        match first {
            [] if last.contains(ENTRY) => format!(
                "store {cut} in {last} instead, or remove entries that are no longer needed: a tensor with its graph keeps all \
                 that the graph saved"
            ),
            [] => {
                format!("{cut} what {last} holds: a tensor with its graph keeps all that the graph saved")
            }
            _ => {
                let names = handed_on(first, last);
                let hold = if names.contains(" and ") { "hold" } else { "holds" };
                format!(
                    "{cut} what {names} {hold}: a tensor with its graph keeps all that the graph saved, and a graph may reach back \
                     through the steps"
                )
            }
        }
    } else if let Some(cut) = of.cuts_graph.filter(|_| has(&["saved by"])) {
        format!("store {cut} in {name} instead: a tensor with its graph keeps all that the graph saved")
    } else if let Some((container, _)) = parted(path).and_then(|path| path.split_once(ENTRY)) {
        // What an entry has in turn is mostly as it always was.
        format!("remove entries that are no longer needed from {}", holder(container))
    } else if let Some((container, within)) = path.rsplit_once(ENTRY)
        && within.starts_with(['.', '['])
    {
        // Nobody puts anything there but as a part of an entry. Several containers have a name in common.
        let container = called(f).filter(|common| container.starts_with(common)).unwrap_or(container);
        let container = holder(container);
        let where_in_them = if container == name { String::new() } else { format!(" ({name})") };
        format!(
            "remove entries that are no longer needed from {container}, or store {copy} in them instead{where_in_them}"
        )
    } else if path.ends_with('*') {
        format!("delete those of {name} that are no longer needed, or store {copy} in them instead")
    } else {
        format!("store {copy} in {name} instead, or remove entries that are no longer needed")
    }
}

/// Returns the attribute by which the objects of a chain refer to each other, where a path follows one.
fn link(path: &str) -> Option<&str> {
    // Where ways part, a path ends in the same sign, behind a space.
    let (chain, _) = path.split_once(CHAIN).filter(|(chain, _)| !chain.ends_with(' '))?;
    let (before, link) = chain.rsplit_once('.')?;
    // A variable of a module is none.
    let link = link.split_once('[').filter(|_| before.contains(['.', '`'])).map_or(link, |(name, _)| name);
    (!link.contains(['[', ' '])).then_some(link)
}

/// Returns the variables that hold what is carried over, if that is all that does.
fn variables(f: &Finding) -> Option<Vec<String>> {
    let variable = |h: &Holder| {
        let text = holder(&h.path);
        let (name, _) = text.strip_prefix('`')?.split_once("` in ")?;
        let is_plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_plain.then(|| format!("`{name}`"))
    };
    let mut names: Vec<String> = f.holders.iter().map(variable).collect::<Option<_>>()?;
    names.dedup();
    (1..=MOST_NAMED).contains(&names.len()).then_some(names)
}

fn bounded(name: &str) -> String {
    format!(
        "give {name} a bound (`maxsize`, the oldest entry removed), or do not cache what is not asked for again"
    )
}
