//! Stands for the fast unwinder on machines it was not written for: it never has an answer.

use crate::unwind::Frames;

pub struct Previous {}

pub fn arm() {}

pub fn modules_changed() {}

impl Previous {
    pub unsafe fn take(_: *mut Previous) -> Option<u64> {
        None
    }

    pub(crate) fn spell_out(&self, _: &mut Frames) {}

    pub unsafe fn release(_: *mut Previous) {}
}
