//! Rule C: two sources. While blocks grow, does the caching allocator take more from the driver, or is the
//! growth served from memory that it had already?

use super::finding::{Finding, Kind};
use super::view::View;
use crate::ledger::sites::Layer;
use crate::ledger::steps::StepRecord;

/// Sets for every growth of blocks how much the reserved memory of its device grew meanwhile.
pub fn compare(view: &View<'_>, findings: &mut [Finding]) {
    let growing = |f: &&mut Finding| matches!(f.kind, Kind::Leak | Kind::Growing) && f.layer == Layer::Block;
    for f in findings.iter_mut().filter(growing) {
        let reserved = |record: &StepRecord| {
            let device = record.devices.iter().find(|d| d.device == f.device)?;
            i64::try_from(device.reserved_bytes).ok()
        };
        let records = view.ledger.steps();
        let from = f.oldest_step.max(view.burn_in);
        let before = records.iter().find(|r| r.step >= from).and_then(reserved);
        let after = records.last().and_then(reserved);
        f.reserved_growth_bytes = before.zip(after).map(|(b, a)| a.saturating_sub(b));
    }
}
