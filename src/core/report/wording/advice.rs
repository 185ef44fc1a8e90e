//! The fix of a finding: one sentence for somebody who is at that line. Knows a finding, no format.

use super::{common_path, holder, is_named};
use crate::frameworks::{self, Arena, Framework, Models};
use crate::ledger::verdict::Kind;
use crate::report::{Finding, Frame};

/// What leads from a tensor to its graph, in a holder's path.
const GRAPH: &str = ".grad_fn";

/// Returns what would fix a finding; `None` where nothing can be said, or nothing needs to be fixed.
pub fn advice(f: &Finding) -> Option<String> {
    let first = f.holders.first().map(|h| h.path.as_str()).filter(|path| is_named(path));
    let named = match common_path(&f.holders) {
        "" => first,
        common => Some(common),
    };
    let of = frameworks::of_block(f.sites.first().and_then(|site| site.entry_point.as_deref()));
    Some(match f.kind {
        _ if f.sites.is_empty() => return None,
        Kind::Leak | Kind::Growing if f.layer == "code" => of.recompiles?.to_owned(),
        Kind::Leak | Kind::Growing if f.layer != "block" => {
            if let Some(arena) = f.sites.first().filter(|_| f.layer == "driver").and_then(|s| arena(&s.stack))
            {
                return Some(arena.advice.to_owned());
            }
            if let Some(name) = named {
                return Some(format!(
                    "copy to the host what {} needs to keep, or remove entries that nobody needs any more",
                    holder(name)
                ));
            }
            let by = f.sites.first().and_then(|s| s.entry_point.as_deref());
            let by = by.map_or_else(String::new, |name| format!(" what {name} allocated"));
            format!("free{by} in the step that allocates it, or allocate it once and keep it")
        }
        Kind::Leak | Kind::Growing => match first.zip(named) {
            Some((_, name)) if f.blocks_per_step == 0.0 => {
                format!(
                    "limit what {} grows to: keep its newest part only, or begin it anew now and then",
                    holder(name)
                )
            }
            Some((path, name)) => match &of.models {
                Some(models) if is_model(f, models) => format!("{} ({})", models.advice, holder(name)),
                _ => of_holder(f, path, &holder(name), of),
            },
            None => "find what keeps the result of this line from one step to the next, and release it there"
                .into(),
        },
        Kind::PendingGc => {
            "break the reference cycle (a weak reference, or `del` of what closes it), or call \
                            `gc.collect()` where a pause does not matter"
                .into()
        }
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
            let given = of.gives_on.map_or_else(String::new, |how| format!("give its memory on ({how}), "));
            format!("{given}`del` it, or let the function that holds it return, before the next step begins")
        }
        _ => return None,
    })
}

/// Returns the arena that an allocation with this stack is for.
pub fn arena(stack: &[Frame]) -> Option<&'static Arena> {
    frameworks::arena_of(stack.iter().map(|frame| frame.frame.file.as_str()))
}

/// Returns whether most of what was kept are a model's variables.
fn is_model(f: &Finding, models: &Models) -> bool {
    let makes = |frame: &Frame| models.are_made_in(&frame.frame.file, &frame.frame.function);
    let made = f.sites.iter().filter(|site| site.stack.iter().any(makes)).map(|site| site.live_bytes);
    2 * made.sum::<u64>() > f.live_bytes
}

/// The variables whose graphs hold what grows, where there are several: the graph of each reaches back through the steps.
fn with_graphs(f: &Finding) -> Vec<String> {
    let of = |path: &str| Some(holder(path.split_once(GRAPH)?.0));
    let mut all: Vec<String> = f.holders.iter().filter_map(|h| of(&h.path)).collect();
    all.sort();
    all.dedup();
    all.truncate(4);
    all
}

/// What would end the growth of a holder, by what its path shows of the cause. `name`: the holder as text names it.
fn of_holder(f: &Finding, path: &str, name: &str, of: &Framework) -> String {
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    if has(&["_metrics", "_results", "logged"]) {
        format!("log a number ({}), not what it was computed from: {name} keeps what is logged", of.number)
    } else if has(&["__traceback__", "tb_frame", "exception", "Traceback"]) {
        format!("drop the exception when it is handled: its traceback keeps the frames ({name})")
    } else if has(&["_hooks"]) {
        format!("remove the hook when it is done: `handle = ….register_…hook(…)`, `handle.remove()` ({name})")
    } else if has(&["lru_cache", "cache"]) {
        format!("give {name} a bound (`maxsize`, the oldest entry removed), or clear it between steps")
    } else if let [first @ .., last] = &with_graphs(f)[..]
        && has(&[GRAPH])
        && !first.is_empty()
    {
        format!(
            "a graph reaches back through the steps: `.detach()` what one step hands on to the next ({} or {last})",
            first.join(", ")
        )
    } else if has(&[GRAPH, "saved by"]) {
        format!(
            "keep `.detach()` or `.item()` in {name}: a tensor with its graph keeps all that the graph saved"
        )
    } else {
        format!("keep {} in {name}, or remove entries that nobody needs any more", of.copy)
    }
}
