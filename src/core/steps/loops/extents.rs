//! Where the loops of a code object are, from its bytecode: once per code object. Pure: bytes in, loops out.
//!
//! A loop is a *natural loop*: an instruction that a later one jumps back to, and all that lies on a way from
//! it to such a jump, ways through exception handlers included. The stretch from the header to the jump is
//! not enough: from 3.11 on handlers stand at the end of the code, so that an `except: continue` reaches
//! across everything in between.

use super::opcodes::{Flow, Meanings, Stores};

/// Longer code is left alone; the longest in the standard library has a tenth of that.
const MOST_UNITS: usize = 1 << 15;
/// Loops of one code object that are distinguished.
const MOST_LOOPS: usize = 250;
/// The instructions by which `async for` fetches an item, at most.
const FETCHING: usize = 10;
/// Nested loops that are distinguished.
pub(super) const DEEPEST: usize = 8;
const NONE: u8 = u8::MAX;

/// One loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Offset of the instruction that it comes back to.
    pub header: u32,
    /// The last instruction that jumps back: a `while` may have its condition there.
    pub last: u32,
    /// It begins with `FOR_ITER`.
    pub is_for: bool,
    /// Where its body begins. From the header to there a `for` or `async for` fetches the next item; a `while` fetches none.
    pub(super) body: u32,
    pub comprehension: bool,
    /// The local variable that each item is given to, and nothing else in the loop.
    pub variable: Option<u16>,
    /// What lies on the stack below the statement with a handler that it is in: the exit function and the manager of a
    /// `with`, of which the latter may be an iterator, and what was there before.
    pub below: u16,
    /// The `for` loops around it in that statement.
    pub depth: u16,
    /// The loop around it.
    parent: u8,
    size: usize,
}

/// The loops of one code object.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    loops: Vec<Loop>,
    /// The innermost loop of each code unit.
    innermost: Vec<u8>,
    /// The code units where a generator may stand still, in order.
    waits: Vec<u32>,
    /// The code units that hand arguments on.
    spreads: Vec<u32>,
}

/// Numbers of loops, from the outermost in.
pub(super) struct Chain([u8; DEEPEST], usize);

impl Chain {
    pub fn get(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Extents {
    /// `bytes` are the instructions as they lie in memory, `exceptions` the exception table (3.11 and later),
    /// `name` that of the function. `None`: the version is not known, or something in the code is not.
    pub fn of(minor: u32, bytes: &[u8], exceptions: &[u8], name: &str) -> Option<Extents> {
        Extents::read(minor, bytes, exceptions, name, true)
    }

    /// `whole`: the two natural loops that one `while` may be are one.
    pub(super) fn read(
        minor: u32,
        bytes: &[u8],
        exceptions: &[u8],
        name: &str,
        whole: bool,
    ) -> Option<Extents> {
        let meanings = Meanings::of(minor)?;
        let units = bytes.len() / 2;
        if units > MOST_UNITS {
            return None;
        }
        let code = Code::decode(&meanings, minor, bytes)?;
        let mut extents = Extents {
            waits: code.marked(|flow| matches!(flow, Flow::Yield | Flow::Send)),
            spreads: code.marked(|flow| flow == Flow::Spread),
            ..Extents::default()
        };
        if code.back.is_empty() {
            return Some(extents);
        }
        // From 3.11 on the name is qualified.
        let name = name.rsplit('.').next().unwrap_or(name);
        let generated = ["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"].contains(&name);
        extents.find(&code, exceptions, generated, whole);
        Some(extents)
    }

    pub fn all(&self) -> &[Loop] {
        &self.loops
    }

    /// Where the first of them begins.
    pub(super) fn first_header(&self) -> Option<u32> {
        self.loops.iter().map(|l| l.header).min()
    }

    /// The innermost loop around an offset. Those around it follow from it.
    #[inline(always)]
    pub(super) fn innermost(&self, offset: u32) -> Option<u8> {
        self.innermost.get(offset as usize / 2).copied().filter(|&number| number != NONE)
    }

    /// The loops around an offset.
    #[inline]
    pub(super) fn around(&self, offset: u32) -> Chain {
        let mut chain = Chain([0; DEEPEST], 0);
        let mut at = self.innermost.get(offset as usize / 2).copied().unwrap_or(NONE);
        while at != NONE && chain.1 < DEEPEST {
            chain.0[chain.1] = at;
            chain.1 += 1;
            at = self.loops[usize::from(at)].parent;
        }
        chain.0[..chain.1].reverse();
        chain
    }

    /// True if a loop reaches over an offset.
    #[inline]
    pub(super) fn holds(&self, number: u8, offset: u32) -> bool {
        let mut at = self.innermost.get(offset as usize / 2).copied().unwrap_or(NONE);
        while at != NONE {
            if at == number {
                return true;
            }
            at = self.loops[usize::from(at)].parent;
        }
        false
    }

    /// True where a generator may stand still.
    pub(super) fn waits_at(&self, offset: u32) -> bool {
        self.waits.binary_search(&(offset / 2)).is_ok()
    }

    /// True where a call hands on arguments that it was given.
    pub(super) fn spreads_at(&self, offset: u32) -> bool {
        self.spreads.binary_search(&(offset / 2)).is_ok()
    }

    fn find(&mut self, code: &Code, exceptions: &[u8], generated: bool, whole: bool) {
        let units = code.index.len();
        let handlers: Vec<Handler> = handlers(exceptions).collect();
        let before = code.predecessors(&handlers);
        let mut found: Vec<(Loop, Vec<usize>)> = Vec::new();
        let mut back = code.back.clone();
        back.sort_unstable();
        for group in back.chunk_by(|a, b| a.0 == b.0).take(MOST_LOOPS) {
            let header = group[0].0;
            let sources = group.iter().map(|b| b.1);
            let last = group.iter().map(|b| b.1).max().unwrap_or(header);
            let mut body = before.body(header, sources);
            // The entry is in it: there is a way to the jump around the header. 3.12 and later have the handlers of exceptions,
            // and what ends an `await`, at the end of the code, from where they jump back to where it goes on.
            if header != 0 && body.contains(&0) {
                continue;
            }
            body.sort_unstable();
            let offset = |at: usize| code.list[at].offset;
            let found_loop = Loop {
                header: offset(header),
                body: code.list.get(code.body_of(header)).map_or(u32::MAX, |first| first.offset),
                last: offset(last),
                is_for: code.list[header].flow == Flow::For,
                comprehension: generated || code.is_comprehension(header, &body),
                variable: code.variable(header, &body),
                below: 0,
                depth: 0,
                parent: NONE,
                size: body.len(),
            };
            found.push((found_loop, body));
        }
        if whole {
            let doubled: Vec<u32> = (found.iter())
                .filter(|(inner, _)| found.iter().any(|(outer, body)| code.is_doubled(outer, body, inner)))
                .map(|(inner, _)| inner.header)
                .collect();
            found.retain(|(l, _)| !doubled.contains(&l.header));
        }
        // Outer before inner.
        found.sort_by_key(|(l, _)| (std::cmp::Reverse(l.size), l.header));
        self.innermost = vec![NONE; units];
        for (number, (mut l, body)) in (0u8..).zip(found) {
            l.parent = self.innermost[l.header as usize / 2];
            // While `async for` fetches, it has a handler of its own.
            let at = |l: &Loop| if l.is_for { l.header } else { l.body } as usize / 2;
            let handler = |l: &Loop| handlers.iter().find(|h| h.covers(at(l)));
            let (own, outer) = (handler(&l), self.loops.get(usize::from(l.parent)));
            l.below = own.map_or(0, |h| h.depth);
            l.depth = outer
                .filter(|p| handler(p).map(|h| h.target) == own.map(|h| h.target))
                .map_or(0, |p| p.depth + u16::from(p.is_for));
            for at in body {
                let from = code.list[at].offset as usize / 2;
                let to = code.list.get(at + 1).map_or(units, |next| next.offset as usize / 2);
                self.innermost[from..to].fill(number);
            }
            self.loops.push(l);
        }
    }
}

struct Instruction {
    offset: u32,
    flow: Flow,
    argument: u32,
    stores: Stores,
}

impl Instruction {
    /// The local variables that it gives a value to.
    fn stored(&self) -> impl Iterator<Item = u32> {
        let (upper, lower) = (self.argument >> 4, self.argument & 15);
        let variables = match self.stores {
            Stores::Nothing => [None, None],
            Stores::One => [Some(self.argument), None],
            Stores::Upper => [Some(upper), None],
            Stores::Both => [Some(upper), Some(lower)],
        };
        variables.into_iter().flatten()
    }
}

struct Code {
    minor: u32,
    list: Vec<Instruction>,
    /// By code unit: the number of the instruction that begins there or after.
    index: Vec<u32>,
    /// (from, to) of every jump.
    jumps: Vec<(usize, usize)>,
    /// (header, source) of every jump back.
    back: Vec<(usize, usize)>,
}

impl Code {
    fn decode(meanings: &Meanings, minor: u32, bytes: &[u8]) -> Option<Code> {
        let units = bytes.len() / 2;
        let mut code = Code {
            minor,
            list: Vec::with_capacity(units),
            index: Vec::new(),
            jumps: Vec::new(),
            back: Vec::new(),
        };
        let (mut at, mut high) = (0, 0u32);
        let mut targets: Vec<(usize, usize, bool)> = Vec::new();
        while at < units {
            let (opcode, low) = (bytes[2 * at], bytes[2 * at + 1]);
            let (flow, caches) = meanings.get(opcode)?;
            let argument = high << 8 | u32::from(low);
            let next = at + 1 + usize::from(caches);
            // A part of the instruction behind it: what jumps there jumps to that.
            if flow == Flow::Extended {
                (at, high) = (next, argument);
                continue;
            }
            high = 0;
            // Up to 3.9 arguments of jumps are bytes, then code units.
            let steps = if minor < 10 { argument / 2 } else { argument } as usize;
            let target = match flow {
                Flow::For | Flow::Forward | Flow::ForwardIf | Flow::Send => Some((next + steps, false)),
                Flow::Backward | Flow::BackwardIf => Some((next.checked_sub(steps)?, true)),
                Flow::Spin => Some((next.checked_sub(steps)?, false)),
                Flow::Absolute | Flow::AbsoluteIf => Some((steps, steps <= at)),
                _ => None,
            };
            if let Some((target, back)) = target {
                targets.push((code.list.len(), target, back));
            }
            let stores = meanings.stores(opcode);
            code.list.push(Instruction { offset: 2 * at as u32, flow, argument, stores });
            at = next;
        }
        let mut number = 0;
        code.index = (0..units as u32)
            .map(|unit| {
                while code.list.get(number).is_some_and(|i| i.offset / 2 < unit) {
                    number += 1;
                }
                number as u32
            })
            .collect();
        for (from, target, back) in targets {
            let to = *code.index.get(target)? as usize;
            code.jumps.push((from, to));
            if back && to <= from {
                code.back.push((to, from));
            }
        }
        Some(code)
    }

    /// The code units of some instructions, with their caches: where one of them begins another frame without C, from 3.12 on,
    /// its own stands at the last of these.
    fn marked(&self, wanted: impl Fn(Flow) -> bool) -> Vec<u32> {
        let ends = self.list.iter().skip(1).map(|next| next.offset / 2).chain([self.index.len() as u32]);
        let all = self.list.iter().zip(ends).filter(|(i, _)| wanted(i.flow));
        all.flat_map(|(i, end)| i.offset / 2..end).collect()
    }

    fn predecessors(&self, handlers: &[Handler]) -> Edges {
        let mut edges: Vec<(u32, u32)> =
            self.jumps.iter().map(|&(from, to)| (to as u32, from as u32)).collect();
        for (at, i) in self.list.iter().enumerate().take(self.list.len().saturating_sub(1)) {
            let falls =
                !matches!(i.flow, Flow::Forward | Flow::Backward | Flow::Spin | Flow::Absolute | Flow::End);
            if falls {
                edges.push((at as u32 + 1, at as u32));
            }
        }
        for handler in handlers {
            let Some(&to) = self.index.get(handler.target) else { continue };
            let from = self.index.get(handler.start).copied().unwrap_or(u32::MAX);
            for at in from..self.list.len() as u32 {
                if self.list[at as usize].offset as usize / 2 >= handler.end {
                    break;
                }
                edges.push((to, at));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        Edges(edges, self.list.len())
    }

    /// From 3.10 on the condition of a `while` stands before it and once more at its end, from where it jumps
    /// behind the first; a `continue` goes to the first. That makes two loops, one around the other.
    fn is_doubled(&self, outer: &Loop, body: &[usize], inner: &Loop) -> bool {
        let number = |offset: u32| self.index[offset as usize / 2] as usize;
        let (first, behind) = (number(outer.header), number(inner.header));
        if outer.is_for || inner.is_for || first >= behind || body.binary_search(&behind).is_err() {
            return false;
        }
        let length = behind - first;
        // 3.12 and later jump over a jump back.
        let condition = |end: usize| end - usize::from(self.list[end].flow == Flow::Backward && end > 0);
        let mut ends = self.back.iter().filter(|back| back.0 == behind).map(|back| condition(back.1));
        ends.any(|end| {
            let Some(start) = (end + 1).checked_sub(length).filter(|start| *start >= behind) else {
                return false;
            };
            let pairs = || self.list[first..behind].iter().zip(&self.list[start..=end]);
            // What jumps, jumps elsewhere; the rest is the same.
            pairs().all(|(a, b)| {
                let plain = a.flow == Flow::Next;
                plain == (b.flow == Flow::Next) && (!plain || a.argument == b.argument)
            })
        })
    }

    /// The instruction that a loop's body begins with: the first after those that fetch an item; of a `while`, the header.
    fn body_of(&self, header: usize) -> usize {
        if self.list[header].flow == Flow::For {
            return header + 1;
        }
        // Up to 3.10 a block is set up before.
        let Some(begins) =
            (header..self.list.len().min(header + 2)).find(|&at| self.list[at].flow == Flow::Anext)
        else {
            return header;
        };
        let rest = &self.list[begins..self.list.len().min(begins + FETCHING)];
        let waits = |flow: Flow| rest.iter().position(|i| i.flow == flow);
        let waited = waits(Flow::Spin).or_else(|| waits(Flow::Yield));
        waited.map_or(header, |at| begins + at + 1)
    }

    /// The variable that the items of a `for` loop are given to, or the first that a part of them is given to, if nothing
    /// else in the loop gives it a value.
    fn variable(&self, header: usize, body: &[usize]) -> Option<u16> {
        let first = self.body_of(header);
        if first == header {
            return None;
        }
        // Where it was waited for, the block or what was awaited is cleared away; from 3.14 on the branch is counted, but not in
        // a comprehension.
        let cleared = match self.minor {
            _ if self.list[header].flow == Flow::For => 0,
            11 => 0,
            ..=13 => 1,
            _ => 2,
        };
        // An item that has parts is taken apart first.
        let after = self.list.get(first..)?.iter().take(2 + cleared);
        let variable = after.flat_map(Instruction::stored).next()?;
        let stored = body.iter().flat_map(|&at| self.list[at].stored()).filter(|&v| v == variable).count();
        u16::try_from(variable).ok().filter(|_| stored == 1)
    }

    /// A comprehension that 3.12 and later put into its function: the append that leaves a list below the
    /// iterator.
    fn is_comprehension(&self, header: usize, body: &[usize]) -> bool {
        let fetches = |at: usize| self.body_of(at) > at;
        fetches(header)
            && body.iter().filter(|&&at| self.list[at].flow == Flow::Append).any(|&append| {
                let inner = body.iter().filter(|&&at| at < append && fetches(at)).max();
                self.list[append].argument >= 2 && inner == Some(&header)
            })
    }
}

/// (to, from), sorted; the number of instructions.
struct Edges(Vec<(u32, u32)>, usize);

impl Edges {
    /// What reaches one of `sources` without passing the header.
    fn body(&self, header: usize, sources: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut seen = vec![false; self.1];
        seen[header] = true;
        let mut body = vec![header];
        let mut work: Vec<usize> = sources.collect();
        while let Some(at) = work.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            body.push(at);
            let first = self.0.partition_point(|e| (e.0 as usize) < at);
            let into = self.0[first..].iter().take_while(|e| e.0 as usize == at);
            work.extend(into.map(|e| e.1 as usize).filter(|&from| !seen[from]));
        }
        body
    }
}

/// An entry of an exception table; in code units.
struct Handler {
    start: usize,
    end: usize,
    target: usize,
    /// How many slots of the stack it leaves as they are.
    depth: u16,
}

impl Handler {
    fn covers(&self, unit: usize) -> bool {
        (self.start..self.end).contains(&unit)
    }
}

/// The entries of an exception table.
fn handlers(table: &[u8]) -> impl Iterator<Item = Handler> {
    let mut rest = table.iter();
    std::iter::from_fn(move || {
        let mut number = || {
            let mut value = 0usize;
            loop {
                let byte = *rest.next()?;
                value = value << 6 | usize::from(byte & 63);
                if byte & 64 == 0 {
                    return Some(value);
                }
            }
        };
        let (start, length, target, depth) = (number()?, number()?, number()?, number()?);
        // Its last bit says whether the handler is told where it happened.
        let depth = u16::try_from(depth >> 1).unwrap_or(u16::MAX);
        Some(Handler { start, end: start.saturating_add(length), target, depth })
    })
}
