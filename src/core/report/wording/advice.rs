//! The fix of a finding: one sentence for somebody who is at that line. Knows a finding, no format.

use super::is_named;
use crate::ledger::verdict::Kind;
use crate::report::Finding;

/// Returns what would fix a finding; `None` where nothing can be said, or nothing needs to be fixed.
pub fn advice(f: &Finding) -> Option<String> {
    let holder = f.holders.first().map(|h| h.path.as_str()).filter(|path| is_named(path));
    Some(match f.kind {
        _ if f.sites.is_empty() => return None,
        Kind::Leak | Kind::Growing if f.layer != "block" => {
            let by = f.sites.first().and_then(|s| s.entry_point.as_deref());
            let by = by.map_or_else(String::new, |name| format!(" what {name} allocated"));
            format!("free{by} in the step that allocates it, or allocate it once and keep it")
        }
        Kind::Leak | Kind::Growing => match holder {
            Some(path) => format!(
                "{path} keeps them: put a number or a copy without its graph there (`.item()`, `.detach().cpu()`), or \
                 take entries out when nobody needs them any more"
            ),
            None => "find what keeps the result of this line from one step to the next, and release it there"
                .into(),
        },
        Kind::PendingGc => {
            "break the reference cycle (a weak reference, or `del` of what closes it), or call \
                            `gc.collect()` where a pause does not matter"
                .into()
        }
        Kind::Residue => {
            let from = holder.map_or_else(String::new, |path| format!(" ({path})"));
            format!(
                "drop the last reference{from} before cached memory is released with `torch.cuda.empty_cache()`"
            )
        }
        Kind::Fragmentation => "allocate what stays before what comes and goes, or run with \
                                PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            .into(),
        Kind::CarryOver => {
            "`del` it, or let the function that holds it return, before the next step begins".into()
        }
        _ => return None,
    })
}
