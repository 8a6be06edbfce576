/* Functions that must leave the registers of arguments as they are, or find an argument elsewhere. */
#if defined(__x86_64__)

/* id objc_msgSend(id receiver, SEL selector, ...): GCC's runtime only looks methods up. 0 of every kind for nil. */
    .text
    .globl mac_objc_msgSend
    .hidden mac_objc_msgSend
    .type mac_objc_msgSend, @function
mac_objc_msgSend:
    test %rdi, %rdi
    jz 1f
    push %rbp
    mov %rsp, %rbp
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %r8
    push %r9
    push %rax
    sub $136, %rsp
    movups %xmm0, 0(%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    call objc_msg_lookup@PLT
    mov %rax, %r11
    movups 0(%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    add $136, %rsp
    pop %rax
    pop %r9
    pop %r8
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    pop %rbp
    jmp *%r11
1:  xor %eax, %eax
    xor %edx, %edx
    xorps %xmm0, %xmm0
    xorps %xmm1, %xmm1
    ret

/* Variable arguments are where fixed ones would be. */
    .macro fixed name
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    jmp \name\()_fixed@PLT
    .endm

#elif defined(__aarch64__)

    .text
    .globl mac_objc_msgSend
    .hidden mac_objc_msgSend
    .type mac_objc_msgSend, %function
mac_objc_msgSend:
    cbz x0, 1f
    stp x29, x30, [sp, #-224]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    bl objc_msg_lookup
    mov x16, x0
    ldp q6, q7, [sp, #192]
    ldp q4, q5, [sp, #160]
    ldp q2, q3, [sp, #128]
    ldp q0, q1, [sp, #96]
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
    br x16
1:  mov x1, #0
    movi d0, #0
    movi d1, #0
    movi d2, #0
    movi d3, #0
    ret

/* macOS puts variable arguments on the stack, each in 8 bytes. */
    .macro fixed name
    .globl \name
    .hidden \name
    .type \name, %function
\name:
    ldr x2, [sp]
    b \name\()_fixed
    .endm

#endif

    fixed mac_open
    fixed mac_fcntl
    .section .note.GNU-stack,"",%progbits
