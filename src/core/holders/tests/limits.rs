//! Collections that the program's source limits, as far as the heap has not passed the number.

use super::*;

/// `store.kept`, with twenty entries, where the program is this.
fn kept(source: &str) -> Retention {
    let attribute = |name: &str| Step::Attribute(name.into());
    let toy = Toy::default().root(0, 1, "__main__.store").holds(1, 2, attribute("kept")).list(2, 10..30);
    let mut toy = (10..30).fold(toy, Toy::tensor);
    toy.source = Some(Assignments::limits_in([("__main__", source)]));
    toy.numbers = BTreeMap::from([((1, "most".to_owned()), 25), ((1, "settings.most".to_owned()), 30)]);
    let wanted: Vec<Wanted> =
        (1010..1030).map(|block| Wanted { block, bytes: 1, ..Wanted::default() }).collect();
    let owners = super::super::find(&mut toy, &wanted).owners;
    let [owner] = &owners[..] else { panic!("{owners:?}") };
    assert_eq!(owner.path, "__main__.store.kept[*]");
    owner.hold
}

#[test]
fn the_number_is_what_the_object_has_or_else_what_the_source_says() {
    let kept = |condition: &str| {
        kept(&format!(
            "class T1:\n  most: int = 90\n  def f(self):\n    if {condition}: self.kept.pop()\nstore.f()"
        ))
    };
    let limited = |limit| Retention::Limited { entries: 20, limit };
    assert_eq!(kept("len(self.kept) > self.most"), limited(25));
    assert_eq!(kept("len(self.kept) > self.settings.most"), limited(30));
    assert_eq!(kept("len(self.kept) > 20"), limited(20));
    assert_eq!(kept("len(self.kept) > args.most"), limited(90));
    // The heap has passed it; and it is not known.
    assert_eq!(kept("len(self.kept) > 19"), Retention::Unbounded);
    assert_eq!(kept("len(self.kept) > self.unknown"), Retention::Unbounded);
}
