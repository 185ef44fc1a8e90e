//! Whose function it would have been without us: the loader's rules of scope, from what is public of it.
//!
//! The global scope is the program, the preloads and what these need, in the order of the loader's list; then every
//! object that a `dlopen` with RTLD_GLOBAL promoted, and that the list does not show. An object opened later has a local
//! scope behind it: what it was opened with, breadth first from the object that was asked for. That one is the first
//! object in the list from which the object can be reached: any other that can reach it would have brought it along
//! earlier. Later openings that reach it are added behind, in their order.
//!
//! Promotion can only be asked for, by `dlsym`, so not inside a hook. A strong reference seldom needs the answer: had it
//! not been in scope, the program would not have come to the call. So what its scope does not show is taken from
//! anywhere. Weak references are the ones that can be unanswered, and there it has to be right: without the runtime in
//! its scope a program goes its way without CUDA, and must not be led into another library's private one. They ask,
//! and so do objects whose own runtime is not the only one that would do: once per object that calls, and only where
//! the function exists outside the scope seen so far.

use std::ffi::{CStr, c_void};

use crate::interpose::elf_format::gnu_hash;
use crate::interpose::link_map;
use crate::interpose::link_map::LinkMap;
use crate::interpose::link_map::Version;
use crate::interpose::trampolines;

/// The definition that a call of `symbol` out of `caller` would have reached without us. `deep`: the caller was opened
/// with RTLD_DEEPBIND, its local scope comes first.
pub fn definition(caller: Option<&LinkMap>, symbol: &CStr, deep: bool) -> Option<*mut c_void> {
    // Code that no object holds (made at run time), or that was handed the address by another object.
    let reference = caller.and_then(|c| c.reference(symbol)).unwrap_or_default();
    let global = || link_map::started_with().find_map(|o| o.find_version(symbol, reference.version));
    let local = || caller.and_then(|c| local(c, symbol, reference.version));
    let found = if deep { local().or_else(global) } else { global().or_else(local) };
    let mut all = link_map::chain().filter_map(|o| o.find_version(symbol, reference.version));
    let outside = match found {
        // What the process began with comes first, whatever was promoted; so does the local scope where it was asked for.
        Some(found) if deep || link_map::object_of(found).is_some_and(started) => return Some(found),
        found => all.find(|other| Some(*other) != found),
    };
    match outside {
        None => found.or_else(|| link_map::anywhere(symbol).filter(|_| !reference.weak)),
        Some(_) if found.is_some() || reference.weak => after_us(symbol, reference.version).or(found),
        strong => strong,
    }
}

/// What `dlsym(RTLD_DEFAULT, symbol)` out of `caller` would have found without us. The loader is asked.
pub fn default(caller: Option<&LinkMap>, symbol: &CStr, version: Version, deep: bool) -> Option<*mut c_void> {
    let before = || {
        link_map::started_with().take_while(|o| !o.is_self()).find_map(|o| o.find_version(symbol, version))
    };
    let global = || before().or_else(|| after_us(symbol, version));
    let local = || caller.and_then(|c| local(c, symbol, version));
    if deep { local().or_else(global) } else { global().or_else(local) }
}

/// What RTLD_DEFAULT finds outside of what the asking object needs is kept loaded from then on, by the loader: on behalf
/// of who asked. Here the loader was asked on our behalf, or not at all, so it is made up for: a reference for good.
pub fn pin(caller: Option<&LinkMap>, found: *const c_void) {
    let Some(object) = link_map::object_of(found).filter(|o| !started(o)) else { return };
    let mut its_own = false;
    if let Some(caller) = caller {
        each_of_closure(caller, |o| its_own |= std::ptr::eq(o, object));
    }
    if !its_own {
        // SAFETY: the path of a loaded object: nothing is loaded, a reference is taken.
        unsafe { libc::dlopen(object.path().as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    }
}

/// What `dlsym(RTLD_NEXT, symbol)` out of `caller` would have found without us.
pub fn next(caller: &LinkMap, symbol: &CStr, version: Version) -> Next {
    let find = |o: &LinkMap| o.find_version(symbol, version);
    let found = if before_us(caller) {
        let behind = link_map::started_with().skip_while(|o| !std::ptr::eq(*o, caller)).skip(1);
        return behind
            .take_while(|o| !o.is_self())
            .find_map(find)
            .or_else(|| after_us(symbol, version))
            .map_or(Next::Nothing, Next::Found);
    } else if started(caller) {
        link_map::started_with().skip_while(|o| !std::ptr::eq(*o, caller)).skip(1).find_map(find)
    } else {
        let objects = Objects::now();
        let mut closures = link_map::opened().map(|root| objects.closure(root));
        let scope = closures.find(|c| c.of(&objects).any(|o| std::ptr::eq(o, caller)));
        scope.and_then(|c| c.of(&objects).skip_while(|o| !std::ptr::eq(*o, caller)).skip(1).find_map(find))
    };
    found.map_or(Next::AskTheLoader, Next::Found)
}

/// An answer to RTLD_NEXT.
pub enum Next {
    Found(*mut c_void),
    Nothing,
    /// Nothing that we can see; but we do not stand behind this caller, so the loader's own answer is never us.
    AskTheLoader,
}

/// True for an object that the process began with.
fn started(object: &LinkMap) -> bool {
    link_map::started_with().any(|o| std::ptr::eq(o, object))
}

/// True for the program, and for preloads that stand before us.
fn before_us(object: &LinkMap) -> bool {
    link_map::started_with().take_while(|o| !o.is_self()).any(|o| std::ptr::eq(o, object))
}

/// What lies behind us in the global scope, with all that was promoted into it. Asking from here with RTLD_NEXT pins
/// nothing: only RTLD_DEFAULT makes the asking object depend on what it found.
fn after_us(symbol: &CStr, version: Version) -> Option<*mut c_void> {
    trampolines::ask_behind_us(symbol, version)
}

/// The first definition in the local scopes of an object that was opened later.
fn local(caller: &LinkMap, symbol: &CStr, version: Version) -> Option<*mut c_void> {
    let defines = |o: &LinkMap| o.find_version(symbol, version);
    if started(caller) || link_map::chain().all(|o| defines(o).is_none()) {
        return None;
    }
    let objects = Objects::now();
    link_map::opened().find_map(|root| {
        let scope = objects.closure(root);
        if !scope.of(&objects).any(|o| std::ptr::eq(o, caller)) {
            return None;
        }
        scope.of(&objects).find_map(defines)
    })
}

/// An object and what it needs, breadth first.
pub fn each_of_closure(root: &LinkMap, mut each: impl FnMut(&'static LinkMap)) {
    let objects = Objects::now();
    objects.closure(root).of(&objects).for_each(&mut each);
}

/// More than that are not looked at.
const MOST: usize = 1024;

/// The loaded objects with hashes of the names they go by, for a look-up that goes through many of them.
struct Objects {
    count: usize,
    map: [Option<&'static LinkMap>; MOST],
    soname: [u32; MOST],
    file_name: [u32; MOST],
}

/// Some of them, in an order.
struct Closure {
    count: usize,
    order: [u16; MOST],
}

impl Objects {
    fn now() -> Objects {
        let mut objects = Objects { count: 0, map: [None; MOST], soname: [0; MOST], file_name: [0; MOST] };
        for map in link_map::chain().take(MOST) {
            let at = objects.count;
            objects.map[at] = Some(map);
            objects.soname[at] = map.soname().map_or(0, |name| gnu_hash(name.to_bytes()));
            objects.file_name[at] = gnu_hash(map.file_name());
            objects.count += 1;
        }
        objects
    }

    /// The object that goes by this name.
    fn named(&self, name: &CStr) -> Option<usize> {
        let hash = gnu_hash(name.to_bytes());
        (0..self.count).find(|i| {
            self.map[*i].is_some_and(|map| {
                (self.soname[*i] == hash && map.soname() == Some(name))
                    || (self.file_name[*i] == hash && map.file_name() == name.to_bytes())
            })
        })
    }

    fn closure(&self, root: &LinkMap) -> Closure {
        let mut closure = Closure { count: 0, order: [0; MOST] };
        let mut taken = [false; MOST];
        let mut take = |closure: &mut Closure, i: usize| {
            if !std::mem::replace(&mut taken[i], true) {
                closure.order[closure.count] = i as u16;
                closure.count += 1;
            }
        };
        if let Some(i) = (0..self.count).find(|i| self.map[*i].is_some_and(|map| std::ptr::eq(map, root))) {
            take(&mut closure, i);
        }
        let mut done = 0;
        while done < closure.count {
            let object = self.map[usize::from(closure.order[done])];
            done += 1;
            for needed in object.into_iter().flat_map(LinkMap::needed) {
                if let Some(i) = self.named(needed) {
                    take(&mut closure, i);
                }
            }
        }
        closure
    }
}

impl Closure {
    fn of(&self, objects: &Objects) -> impl Iterator<Item = &'static LinkMap> {
        self.order[..self.count].iter().filter_map(|i| objects.map[usize::from(*i)])
    }
}
