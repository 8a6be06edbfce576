/* Reads its input to the end and exits with 7: a program that lives as long as somebody wants. */
#include <unistd.h>

int main(void) {
    char buffer[256];
    while (read(0, buffer, sizeof buffer) > 0) {
    }
    return 7;
}
