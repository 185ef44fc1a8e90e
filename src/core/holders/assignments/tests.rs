//! Python programs of a few lines, and whether a variable of theirs is made anew.

use super::limits::Limit;
use super::*;

fn are_anew(text: &str, variable: Variable<'_>) -> bool {
    Assignments::of([("a", text)]).are_anew(variable)
}

fn global(text: &str, name: &str) -> bool {
    are_anew(text, Variable::Global { module: "a", name })
}

#[test]
fn inputs_are_made_anew() {
    for text in [
        "for i in r:\n    n = 16 + i * 4\n    x = torch.randn(8, n, device='cuda')\n    loss = net(x).mean()",
        "docs = sorted([torch.randn(20 + i, 64) for i in r], key=len)\nfor d in docs:\n  x = d.cuda()",
        "bs = 4; ok = []\nwhile bs < 9:\n    x = torch.randn(bs,\n        1024)  # x = x\n    ok.append(bs); bs += 4",
        "'''x = x'''\nfor i in y: x: Tensor = f(i)",
        "for x in loader: f(x)",
        "net = build().eval()\nfor i in r: x = net(i)",
        "with open(p) as f, g() as x: pass",
        "print(x := f(1))",
        "for i in r:\n    x = torch.randn(i).cuda()\n    x[x > 1] = 0\n    h = f(x); y = h(x)",
        // A function's own variables are others.
        "def f(n):\n    out = net(n); return out\nfor i in r: x = f(i)\nout = x",
        "def f(n):\n    x = net(n); x = x + 1\n    return x\nfor i in r: x = f(i)",
    ] {
        assert!(global(text, "x"), "{text}");
    }
    let class = "class R:\n  def run(self, docs):\n    for d in docs:\n      self.batch = d.cuda()\n      self.step()\n  \
                 def step(self): return self.model(self.batch).mean().item()\nR().run([torch.randn(i) for i in r])";
    assert!(are_anew(class, Variable::Attribute("batch")));
    let local = Variable::Local { function: "main", name: "x" };
    assert!(are_anew("def main():\n  for i in r:\n    x = torch.randn(i)", local));
}

#[test]
fn what_is_made_of_the_value_before_is_not() {
    for text in [
        "x = torch.zeros(0)\nfor i in r:\n    x = torch.cat([x, f(i)])",
        "for i in r:\n    new = torch.cat([x, f(i)])\n    x = new",
        "for i in r:\n    before = x\n    x = torch.cat([before,\n        f(i)])",
        "def grow(b):\n    return torch.cat([b, new])\nfor i in r: x = grow(x)",
        "def grow(i):\n    global x\n    x = torch.cat([x, i])\nfor i in r: grow(i)",
        "def grow(i): return torch.cat([x, i])\nfor i in r: x = grow(i)",
        "for i in r: x.data = torch.cat([x.data, f(i)])\nx = nn.Parameter(y)",
        "for i in r: y, x = model(i, (x, 1))",
        "for i in r: x += f(i)",
        // Of what is gathered.
        "seen = []\nfor i in r:\n    seen.append(f(i))\n    x = torch.stack(seen).cuda()",
        "seen = {}\nfor i in r:\n    seen[i] = f(i)\n    x = torch.stack(list(seen.values())).cuda()",
        "class S:\n    def __init__(self): self.all = []\n    def keep(self, v): self.all.append(v)\n    \
         def get(self): return torch.stack(self.all)\ns = S()\nfor i in r:\n    s.keep(i); x = s.get()",
        "seen = np.zeros(0)\nfor i in r:\n    seen = np.concatenate([seen, f(i)])\n    x = torch.tensor(seen).cuda()",
        "seen = []\nfor i in r:\n    seen += [f(i)]\n    x = torch.tensor(seen).cuda()",
        "def all():\n    b = f(0)\n    while True:\n        b = torch.cat([b, f(1)])\n        yield b\nfor x in all(): pass",
        // In other words than `=`.
        "x = f(0)\nfor i in r: x.resize_(i)",
        "x = f(0)\nfor i in r: globals()['x'] = torch.cat([x, f(i)])",
        "x = f(0)\nfor i in r: exec('x = torch.cat([x, f(i)])')",
        "x = f(0)\nimport a\nfor i in r: a.x = torch.cat([a.x, f(i)])",
        // Nothing is known.
        "y = 1",
        "",
    ] {
        assert!(!global(text, "x"), "{text}");
    }
    for body in [
        "self.keys = torch.cat([self.keys, z])",
        "k = torch.cat([self.keys, z]); self.keys = k",
        "self.keys = self.more(z)\n  def more(self, z): return torch.cat([self.keys, z])",
        "self.keys = self.more(self.keys, z)\n  def more(self, k, z):\n    return torch.cat([k, z])",
        "self.more(self.keys, z)\n  def more(self, k, z):\n    self.keys = torch.cat([k, z])",
        "self.register_buffer('keys', torch.cat([self.keys, z]))",
        "setattr(self, name, torch.cat([getattr(self, name), z]))",
    ] {
        let text = format!("class M:\n  keys = torch.zeros(1)\n  def step(self, z): {body}");
        assert!(!are_anew(&text, Variable::Attribute("keys")), "{text}");
    }
}

#[test]
fn collections_are_made_of_themselves() {
    let of_itself = |text: &str| {
        Assignments::of([("a", text)]).are_of_themselves(Variable::Global { module: "a", name: "x" })
    };
    for text in [
        "for i in r: x = {k: v * 0.9 for k, v in x.items()}",
        "for i in r: x = dict(enumerate([v * 0.9 for v in x.values()]))",
        "def on(hs): return [h + 0.01 for h in hs]\nfor i in r:\n    x = on(x)\n    if i % 5 == 4: x.append(f(i))",
        "for i in r:\n    new = []\n    for v in x: new.append(v * 0.9)\n    x = new",
        "for i in r:\n    new = {}\n    for k in x: new[k] = x[k] * 0.9\n    x = new",
        "for i in r: x = list(map(f, x))",
        "for i in r: x = copy.deepcopy(x); x.append(f(i))",
    ] {
        assert!(of_itself(text), "{text}");
    }
    for text in [
        "for i in r: x = [f(j) for j in range(i)]",
        "for i in r:\n    fresh = []\n    run(s, fresh)\n    x = fresh\n    for v in x: print(v)",
        "for i in r:\n    states = []\n    for _ in range(i): states.append(s); s = f(s)\n    x = states",
        "for i in r: x = [s := f(s) for _ in range(i)]",
        "for i in r: x = [f(d) for d in docs]; y = [v.item() for v in x]",
        "for i in r: x = [x[-1] + j for j in range(i)]",
        "",
    ] {
        assert!(!of_itself(text), "{text}");
    }
}

#[test]
fn what_is_computed_from_what_another_variable_keeps() {
    let computed = |text: &str| {
        let global = |name| Variable::Global { module: "a", name };
        Assignments::of([("a", text)]).are_computed_from(global("x"), [global("kept")].into_iter())
    };
    for text in [
        "for i in r:\n    z = net(i)\n    kept = torch.cat([kept, z])\n    x = z @ kept.T",
        "kept = []\nfor i in r:\n    kept.append(f(i))\n    y = torch.stack(kept)\n    x = y.softmax(-1)",
    ] {
        assert!(computed(text), "{text}");
    }
    for text in [
        "for i in r:\n    kept = torch.cat([kept, f(i)])\n    x = torch.cat([x, f(i)])",
        "for i in r:\n    x = torch.cat([x, kept])\n    kept = torch.cat([kept, f(i)])",
        "kept = net()\nfor i in r: x = kept(torch.stack(seen))",
        "",
    ] {
        assert!(!computed(text), "{text}");
    }
}

#[test]
fn any_text_is_read() {
    let all =
        "x = [(\"a\n'''b\\\n{é: lambda y: 1}; def f(:=\n @ class : async for in\n\tx[1,2] = y = :=\n''' \\";
    for (at, _) in all.char_indices() {
        global(&all[at..], "x");
        global(&all[..at], "x");
    }
}

/// The lengths that `x` is kept at.
fn limits(text: &str) -> Vec<String> {
    let all = Assignments::limits_in([("a", text)]);
    let limits = all.limits_of(Variable::Global { module: "a", name: "x" }, false, &["C".to_owned()]);
    limits.into_iter().map(|kept| format!("{:?}", kept.limit)).collect()
}

#[test]
fn a_limit_is_kept_where_something_is_dropped_or_refused() {
    for text in [
        "if len(x) > 5: del x[0]",
        "if len(x) >= 5:\n    x.pop(0)\nx.append(1)",
        "while 5 < len(x):\n    x.popitem()",
        "if len(x) > 5: x = x[3:]",
        "if len(x) > 5:\n    print(1)\n    x[:] = x[1:]",
        "if len(x) == 5: x.clear()",
        "if k not in x and len(x) > 5: x.pop(0)",
        "if len(x) < 5:\n  x.append(1)\nelse:\n  x[i] = 1",
        "if len(x) > 5: heapq.heappop(x)",
        "if len(x) < 5: heapq.heappush(x, y)",
        "if n < 5:\n  n += 1\n  x.append(1)",
        "x = x[-5:]",
        "x = x[:5]",
        "del x[:-5]",
        "del x[5:]",
        "def drop(): x.pop()\nif len(x) > 5: drop()",
        "def f(): \n  if len(x) > 5: x.pop()\nf()",
        "def put(to, v):\n  to.append(v)\n  if len(to) > 5: to.pop(0)\nput(x, 1)",
        "class C(dict):\n  def __setitem__(self, k, v):\n    if len(self) > 5: super().pop(k)",
        "class C(A): pass\nclass A:\n  def add(self, v):\n    if len(self) < 5: self.all.append(v)\nx.add(1)",
        // In other words.
        "n = len(x)\nif n > 5: x.pop()",
        "if (n := len(x)) > 5: x.pop()",
        "if len(x) + len(y) > 5: x.pop()",
        "if not len(x) < 5: x.pop()",
        "is_full = len(x) >= 5\nif is_full: x.pop()",
        "def is_full(): return len(x) >= 5\nif is_full(): x.pop()",
        "def is_full(): return len(x) >= 5\nif not is_full(): x.append(1)",
        "if x and len(x) > 5: x.pop()",
        "b = x\nb.append(1)\nif len(b) > 5: b.pop(0)",
        "if len(x) < 5: x[k] = 1",
        "x = (x + [1])[-5:]",
        "x = sorted(x)[:5]",
        "x = [1] + x[:5]",
        "x = [*x[-5:], 1]",
        "x = heapq.nlargest(5, x)",
        "x[:] = x[-5:]",
        "x[:-5] = []",
        "del x[:len(x) - 5]",
        "del x[:max(0, len(x) - 5)]",
        "more = len(x) - 5\nif more > 0: del x[:more]",
        "if len(x) - 5 > 0: x.pop()",
        // Along with another, or with a count.
        "y.append(1)\nx.append(1)\nif len(y) > 5:\n  y.pop(0)\n  x.pop(0)",
        "y.append(k)\nx[k] = 1\nif len(y) > 5: del x[y.pop(0)]",
        "if len(y) < 5:\n  y.append(1)\n  x.append(1)",
        "x.append(1)\nn += 1\nif n > 5:\n  n -= 1\n  x.popleft()",
        // What follows is for shorter ones only.
        "def f():\n  if len(x) >= 5: return\n  x.append(1)\nf()",
        "for i in r:\n  if len(x) >= 5:\n    x[i % 5] = 1\n    continue\n  x.append(1)",
        "if len(x) >= 5:\n  x[i] = 1\nelse:\n  x.append(1)",
        "def f():\n  x.append(1)\n  if len(x) <= 5: return\n  x.pop(0)\nf()",
        // Remainders.
        "x[i % 5] = 1",
        "slot = (i + 1) % 5\nx[slot] = 1",
        "x.append(1)\nif (i + 1) % 5 == 0: x.clear()",
        "x.append(1)\nif i > 0 and i % 5 == 0:\n  f(x)\n  x = []",
        "x.append(1)\nif not i % 5: del x[:]",
    ] {
        assert_eq!(limits(text), ["Number(5)"], "{text}");
    }
    for text in [
        "if len(x) > 5: print(1)",
        "if len(x) > 5: y.pop(0)",
        "x.append(1)\nif len(y) > 5: x.pop(0)",
        "more = len(x) - 5\nmore = 1\nif more > 0: x.pop()",
        "if n > 5: x.pop()",
        "if len(x) > 5: x.append(x.pop(0))",
        "if len(x) > 5 and old(): x.pop(0)",
        "if len(x) < 5: x.append(1)\nx.append(2)",
        "if n < 5: x.append(1)",
        "ok = len(x) < 5",
        "y = x[-5:]",
        // Nobody calls it, or only with a copy, or it is another class's.
        "def f(): \n  if len(x) > 5: x.pop()",
        "def put(to):\n  if len(to) > 5: to.pop(0)\nput(list(x))",
        "class D(dict):\n  def __setitem__(self, k, v):\n    if len(self) > 5: self.pop(k)",
        "if len(x) % 5 == 0: x.pop()",
        "if len(x) > 5 ** n: x.pop()",
        "if len(x) > 5: y.append(1)\nx.append(1)",
        "def f():\n  if len(x) >= 5: return\n  x.append(1)\nf()\ndef g(): x.append(1)\ng()",
        "n = len(x)\nn = 0\nif n > 5: x.pop()",
        "x = [1] + x",
        "x = x[-5:] + x",
        "for b in x:\n  if len(b) > 5: b.pop()",
        "if len(x[k]) > 5: x.pop(k)",
        "while True:\n  if len(x) >= 5: break\n  x.append(1)",
        "def f():\n  if len(x) >= 5: raise StopIteration\n  x.append(1)\nf()",
        "if len(x) != 5: x.pop()",
        "if len(y) > 5: y.pop()",
        "for i in range(len(x)): x.pop()",
        "x[n * 5 + i % 5] = 1",
        "x['%s' % 5] = 1",
        "x[i % 5, n] = 1",
        "x.append(1)\nx[i % 5] = 1",
        "x.append(1)\nif i % 5 == 0: x.pop()",
        "x.append(1)\nif i % 5: x.clear()",
        "x.append(1)\nif i % 5 == 0 and full: x.clear()",
    ] {
        assert_eq!(limits(text), [""; 0], "{text}");
    }
    assert_eq!(limits("if MOST <= len(x): x.pop()"), ["Path([\"MOST\"])"]);
    assert_eq!(limits("if MOST is not None and len(x) > MOST: x.pop()"), ["Path([\"MOST\"])"]);
    assert_eq!(limits("if len(x) > args.cache.most: x.pop()"), ["Path([\"args\", \"cache\", \"most\"])"]);
}

#[test]
fn collections_in_a_collection_have_limits_of_their_own() {
    for text in [
        "x[k].append(1)\nif len(x[k]) > 5: x[k].pop(0)",
        "b = x.setdefault(k, [])\nb.append(1)\nif len(b) > 5: b.pop(0)",
        "for b in x.values():\n  if len(b) > 5: b.pop()",
        "for k, b in x.items(): del b[:-5]",
        "x[k] = x[k][-5:]",
    ] {
        let all = Assignments::limits_in([("a", text)]);
        let x = Variable::Global { module: "a", name: "x" };
        let limits = |is_entry| all.limits_of(x, is_entry, &[]).into_iter().map(|kept| &kept.limit);
        assert_eq!(limits(true).collect::<Vec<_>>(), [&Limit::Number(5)], "{text}");
        assert_eq!(limits(false).count(), 0, "{text}");
    }
}

#[test]
fn a_limit_counts_while_flags_are_as_they_must_be() {
    let flags = |text: &str| {
        let all = Assignments::limits_in([("a", text)]);
        let of = all.limits_of(Variable::Global { module: "a", name: "x" }, false, &[]);
        let flags = of.into_iter().flat_map(|kept| &kept.flags);
        flags.map(|f| (f.path.join("."), f.is_set, f.is_required)).collect::<Vec<_>>()
    };
    let flag = |path: &str, is_set, is_required| vec![(path.to_owned(), is_set, is_required)];
    assert_eq!(flags("if on and len(x) > 5: x.pop()"), flag("on", true, true));
    assert_eq!(flags("if not c.off and len(x) > 5: x.pop()"), flag("c.off", false, true));
    assert_eq!(flags("if on:\n  if len(x) > 5: x.pop()"), flag("on", true, false));
    assert_eq!(flags("if not off:\n  x = x[-5:]"), flag("off", false, false));
    let left = "def f():\n  if not c.on:\n    return\n  y = 1\n  if len(x) > 5: x.pop()\nf()";
    assert_eq!(flags(left), flag("c.on", true, false));
    for text in ["if on: y = 1\nif len(x) > 5: x.pop()", "def f(): return on\nif len(x) > 5: x.pop()"] {
        assert_eq!(flags(text), [], "{text}");
    }
}

#[test]
fn a_limit_is_computed_of_numbers_and_paths() {
    let value = |limit: &str| {
        let text = format!("if len(x) > {limit}: x.pop()");
        let all = Assignments::limits_in([("a", text.as_str())]);
        let x = Variable::Global { module: "a", name: "x" };
        let numbers = |path: &[String]| (path.last()? == "n").then_some(path.len() as u64 * 10);
        all.limits_of(x, false, &[]).first()?.limit.value(&mut { numbers })
    };
    for (limit, number) in [
        ("n", 10),
        ("2 * n", 20),
        ("n - 2 * 3 + 1", 5),
        ("(n + 2) // 3", 4),
        ("c['n']", 20),
        ("a.c[\"n\"] - 1", 29),
    ] {
        assert_eq!(value(limit), Some(number), "{limit}");
    }
    for limit in ["m", "n - 11", "n // 0", "f(n)", "n % 3", "c[n]", "-n"] {
        assert_eq!(value(limit), None, "{limit}");
    }
}

#[test]
fn the_length_of_an_object_limits_what_it_has() {
    let limits = |caller: &str| {
        let class =
            "class Pool:\n  def put(self, y): self.x.append(y)\n  def __len__(self): return len(self.x)\n";
        let all = Assignments::limits_in([("a", format!("{class}{caller}").as_str())]);
        all.limits_of(Variable::Attribute("x"), false, &["Pool".to_owned()]).len()
    };
    assert_eq!(limits("pool = Pool()\npool.put(1)\nif len(pool) > 5: pool.pop(0)"), 1);
    assert_eq!(limits("pool = Pool()\npool.put(1)\nwhile len(pool.x) > 5: pool.x.pop(0)"), 1);
    let held = "class T:\n  def __init__(self): self.pool = Pool()\n  def f(self):\n    self.pool.put(1)\n    \
                if len(self.pool) > 5: self.pool.pop(0)\nT().f()";
    assert_eq!(limits(held), 1);
    assert_eq!(limits(&held.replace("Pool()", "Other()")), 0);
    assert_eq!(limits("pool = Pool()\npool = f()\nif len(pool) > 5: pool.pop(0)"), 0);
}

#[test]
fn the_limit_of_an_attribute_is_that_of_its_class() {
    let text = "class A:\n  @property\n  def full(self): return len(self.x) >= self.most\n  def add(self, v):\n    \
                if self.full: self.x.pop(0)\n    self.x.append(v)\na.add(1)";
    let all = Assignments::limits_in([("a", text)]);
    assert_eq!(all.limits_of(Variable::Attribute("x"), false, &["A".to_owned()]).len(), 1);

    let source =
        "class A:\n  def f(self):\n    if len(self.x) > self.most: self.x.pop()\nclass B: pass\na.f()";
    let all = Assignments::limits_in([("a", source)]);
    let of = |class: &str| all.limits_of(Variable::Attribute("x"), false, &[class.to_owned()]).len();
    assert_eq!((of("A"), of("B")), (1, 0));
}

#[test]
fn a_name_has_the_one_number_that_the_source_gives_it() {
    let number = |text: &str| Assignments::limits_in([("a", text)]).number("most");
    for text in [
        "most = 1_000",
        "C(most=1000)",
        "class C:\n  most: int = 1000",
        "def f(most=1000): pass",
        "f(a, most=1000)\nmost = 1000",
    ] {
        assert_eq!(number(text), Some(1000), "{text}");
    }
    for text in ["most = 1000 * n", "most = 1000\nmost = 2000", "if most == 1000: pass", "most = 0x10"] {
        assert_eq!(number(text), None, "{text}");
    }
}

/// Classes whose methods have one name, and each call it.
fn namesakes(count: usize) -> String {
    let class = |n: usize| {
        format!(
            "class C{n}:\n  def forward(self, x, y):\n    h{n} = self.inner{n}.forward(x, y)\n    return h{n} + y\n"
        )
    };
    (0..count).map(class).collect()
}

#[test]
fn functions_of_one_name_are_read_in_proportion_to_their_number() {
    let flows = |count| {
        let all = Assignments::of([("a", namesakes(count).as_str())]);
        all.from.values().map(HashSet::len).sum::<usize>()
    };
    assert!(flows(400) < 9 * flows(50), "{} and {}", flows(400), flows(50));
}

#[test]
fn a_variable_of_many_functions_of_one_name_is_none() {
    let local = Variable::Local { function: "run", name: "x" };
    let text = "def run():\n  x = make(1)\n";
    assert!(are_anew(&text.repeat(MOST_NAMESAKES), local));
    assert!(!are_anew(&text.repeat(MOST_NAMESAKES + 1), local));
}
