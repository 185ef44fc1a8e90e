//! The moments of a run that go by a name.

use super::{Annotation, AnnotationCount};
use crate::format::event::AnnotationKind;
use crate::format::tables::Tables;
use crate::ledger::{self, Ledger};

/// Characters of a name.
const NAME: usize = 200;
/// The most frequent ones that are counted.
const COUNTED: usize = 20;

/// The name of a mark; `None`: it is none to tell of.
fn name(tables: &Tables, kind: AnnotationKind, label: u32) -> Option<String> {
    let label = || tables.labels.get(&label).map(|text| text.chars().take(NAME).collect());
    match kind {
        AnnotationKind::User => label(),
        // Of some, how many came is no figure: they stopped being told of.
        AnnotationKind::Range => label().filter(|_| !tables.meta.contains_key("ranges")),
        AnnotationKind::Gc => Some("garbage collection".into()),
        AnnotationKind::EmptyCache => Some("torch.cuda.empty_cache()".into()),
    }
}

/// The latest ones, oldest first.
pub fn latest(ledger: &Ledger, tables: &Tables) -> Vec<Annotation> {
    let mark = |m: &ledger::Annotation| {
        let kind = m.kind();
        Some(Annotation {
            step: m.step,
            at_s: m.at_ns as f64 / 1e9,
            name: name(tables, kind, m.label)?,
            kind: kind.name(),
        })
    };
    ledger.annotations().filter_map(mark).collect()
}

/// The most frequent ones first.
pub fn counts(ledger: &Ledger, tables: &Tables) -> Vec<AnnotationCount> {
    let count = |(kind, label, count): (AnnotationKind, u32, u32)| {
        Some(AnnotationCount { name: name(tables, kind, label)?, kind: kind.name(), count })
    };
    let mut counts: Vec<AnnotationCount> = ledger.annotation_counts().filter_map(count).collect();
    counts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counts.truncate(COUNTED);
    counts
}
