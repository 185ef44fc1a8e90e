/* Physical memory: ranges with several handles mapped into them in any legal order, and multicast objects. */
#pragma once
#include "families.h"

static CUprop physical(int on_host) {
    return (CUprop){.type = 1, .handle_types = 1, .location = {on_host ? 2 : 1, 0}};
}

static void book_physical(struct thread *t, int sign, size_t bytes, int on_host) {
    if (on_host) book_host(t, sign, bytes);
    else book_device(t, sign, bytes);
}

static void range_create(struct thread *t, struct range *r, int h) {
    r->on_host[h] = below(t, 8) == 0;
    CUprop prop = physical(r->on_host[h]);
    MUST(cu(Create)(&r->handle[h][0], r->unit, &prop, 0));
    r->references[h] = 1;
    book_physical(t, 1, r->unit, r->on_host[h]);
}

static void range_dropped(struct thread *t, struct range *r, int h) {
    if (!r->references[h] && !r->maps[h]) book_physical(t, -1, r->unit, r->on_host[h]);
}

static void range_release(struct thread *t, struct range *r, int h) {
    MUST(cu(Release)(r->handle[h][--r->references[h]]));
    range_dropped(t, r, h);
}

/* One call for all mappings of some adjacent parts. */
static void range_unmap(struct thread *t, struct range *r, int first, int count) {
    MUST(cu(Unmap)(r->base + first * r->unit, count * r->unit));
    for (int p = first; p < first + count; p++) {
        int h = r->part[p] - 1;
        r->part[p] = 0;
        r->maps[h]--;
        range_dropped(t, r, h);
    }
}

static void range_again(struct thread *t, struct range *r, int h, int p) {
    CUhandle *other = &r->handle[h][r->references[h]];
    if (r->part[p] == h + 1) {
        MUST(cu(Retain)(other, (void *)(r->base + p * r->unit)));
    } else if (r->references[h] && has(Export) && has(Import) && below(t, 8) == 0) {
        int fd = -1;
        MUST(cu(Export)(&fd, r->handle[h][0], 1, 0));
        MUST(cu(Import)(other, (void *)(intptr_t)fd, 1));
        close(fd);
    } else {
        return;
    }
    r->references[h]++;
}

static void range_act(struct thread *t, struct living *l) {
    struct range *r = &l->range;
    int h = below(t, HANDLES), p = below(t, PARTS);
    CUaccess access = {{1, 0}, 3};
    switch (below(t, 6)) {
    case 0:
        if (!r->references[h] && !r->maps[h]) range_create(t, r, h);
        break;
    case 1: case 2:
        if (!r->references[h] || r->part[p]) break;
        MUST(cu(Map)(r->base + p * r->unit, r->unit, 0, r->handle[h][0], 0));
        MUST(cu(SetAccess)(r->base + p * r->unit, r->unit, &access, 1));
        r->part[p] = h + 1;
        r->maps[h]++;
        /* PyTorch and NCCL release the handle at once and let the mapping keep the memory */
        if (below(t, 2)) range_release(t, r, h);
        break;
    case 3: {
        int count = 0;
        while (p + count < PARTS && r->part[p + count] && (!count || below(t, 3))) count++;
        if (count) range_unmap(t, r, p, count);
        break;
    }
    case 4:
        if (r->references[h]) range_release(t, r, h);
        break;
    default:
        if (r->references[h] < HANDLES) range_again(t, r, h, p);
    }
}

static int range_begin(struct thread *t, struct living *l) {
    memset(&l->range, 0, sizeof l->range);
    l->range.unit = GRANULE * (1 + below(t, 2));
    MUST(cu(Reserve)(&l->range.base, PARTS * l->range.unit, 0, 0, 0));
    range_act(t, l);
    range_act(t, l);
    return 1;
}

static void range_end(struct thread *t, struct living *l) {
    struct range *r = &l->range;
    int release_first = below(t, 2);
    for (int round = 0; round < 2; round++) {
        for (int h = 0; h < HANDLES && round != release_first; h++)
            while (r->references[h]) range_release(t, r, h);
        for (int p = 0; p < PARTS && round == release_first; p++) {
            int count = 0;
            while (p + count < PARTS && r->part[p + count]) count++;
            if (count) range_unmap(t, r, p, count);
        }
    }
    MUST(cu(AddressFree)(r->base, PARTS * r->unit));
}

/* A multicast object of one device, with physical memory or a plain block bound to it. */
static int team_begin(struct thread *t, struct living *l) {
    if (!has(TeamCreate)) return 0;
    memset(&l->team, 0, sizeof l->team);
    struct team *team = &l->team;
    team->bytes = GRANULE;
    CUteam wish = {.devices = 1, .bytes = team->bytes, .handle_types = 1};
    MUST(cu(TeamCreate)(&team->object, &wish));
    MUST(cu(TeamAdd)(team->object, 0));
    if (below(t, 2)) {
        CUprop prop = physical(0);
        MUST(cu(Create)(&team->memory, team->bytes, &prop, 0));
        MUST(cu(TeamBind)(team->object, 0, team->memory, 0, team->bytes, 0));
    } else {
        MUST(cu(MemAlloc)(&team->linear, team->bytes));
        MUST(cu(TeamBindAt)(team->object, 0, team->linear, team->bytes, 0));
    }
    book_device(t, 1, team->bytes);
    return 1;
}

static void team_end(struct thread *t, struct living *l) {
    struct team *team = &l->team;
    int object_first = below(t, 2);
    MUST(cu(TeamUnbind)(team->object, 0, 0, team->bytes));
    if (object_first) MUST(cu(Release)(team->object));
    if (team->memory) MUST(cu(Release)(team->memory));
    else MUST(cu(MemFree)(team->linear));
    if (!object_first) MUST(cu(Release)(team->object));
    book_device(t, -1, team->bytes);
}
